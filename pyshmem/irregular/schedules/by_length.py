"""By length: tiles of like length go side by side, in whichever order they lie, so that none waits for a longer one.

Windows of the matrix are sorted, not the whole of it: programs that run together then read neighbouring atoms, and share
what the caches hold. Tiles of more than ``size`` atoms are split. Ideas: the bins of Greathouse and Daga (SC 2014), and the
windows of SELL-C-sigma (Kreutzer et al., SISC 2014).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.base import interpreter
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.parts import Items, Parted
from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.values import values_of

# atoms of a group, and how many of a tile a thread takes before its lanes are added
_SLOTS, _THREADS, _UNROLLED = (16, 4, 2) if interpreter.active() else (1024, 128, 4)
_WIDE, _WIDE_SLOTS = 8, 2048  # sums of a tile from which on it has many, and of a group of such tiles
# atoms that a thread loads at once, of works with one sum; the fewer of tiles of one length that would else need twice the
# slots, if they are of so many atoms at most
_VECTORS, _NARROW = (4, 2), 32
_STACKED = 32  # sums of a tile of which a thread takes several atoms, as of few sums: of 8 or 64 that is slower
_WINDOW = 64 if interpreter.active() else 1 << 20  # atoms
_KINDS = 32  # more than there are


class Kind(NamedTuple):
    """Tiles of up to ``length`` atoms, counted from where their vectors begin, and how their atoms lie beside each other.

    A lane, of ``lanes`` of each of ``tiles``, has ``vector`` neighbouring atoms ``deep`` times, from a multiple of it on.
    """

    length: int
    deep: int
    tiles: int
    lanes: int
    vector: int


class Groups(NamedTuple):
    """firsts: the first item of each group, and the end of the last.  kinds: how its items lie beside each other."""

    firsts: Any
    kinds: Any


@triton.jit
def execute_group(
    items, groups, parts, operands,
    work: tl.constexpr, SIDES: tl.constexpr, KINDS: tl.constexpr, ANY: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Sum the tiles of a group, and finish them or store the sums of parts.

    SIDES: of each of KINDS, what follows the length. Tiles of the first are empty; from ANY on a group is one tile, of any
    number of atoms.  EARLY: the kernel begins before its predecessor ends, and lets its successor do so.
    """
    group = tl.program_id(0)
    kind, first, last = (
        tl.load(groups.kinds + group), tl.load(groups.firsts + group), tl.load(groups.firsts + group + 1)
    )  # fmt: skip
    if EARLY:  # where groups lie never changes; the preceding kernel may write everything else
        gpu.follow()
    if kind == 0:
        finish_empty_items(items, first, last, operands, work, SIDES[0][1])
    for number in tl.static_range(1, KINDS):
        if kind == number:
            sum_items(
                items, first, last, parts, operands, work,
                SIDES[number][0], SIDES[number][1], SIDES[number][2], SIDES[number][3], number >= ANY,
            )  # fmt: skip


@triton.jit
def finish_empty_items(items, first, last, operands, work: tl.constexpr, TILES: tl.constexpr):
    """Finish the items from ``first`` to before ``last``, which have no atoms."""
    WIDTH: tl.constexpr = work.WIDTH
    item = first + tl.arange(0, TILES)[:, None]
    live = item < last
    tile = tl.load(items.tiles + item, mask=live, other=0)
    work.TILE(operands, tile, tl.arange(0, WIDTH)[None, :], tl.zeros((TILES, WIDTH), dtype=work.SUM), live)


@triton.jit
def sum_items(
    items, first, last, parts, operands, work: tl.constexpr,
    DEEP: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr, ANY: tl.constexpr,
):  # fmt: skip
    """Sum the items from ``first`` to before ``last``. ANY: it is one, of any length, and may be a part of a tile."""
    WIDTH: tl.constexpr = work.WIDTH
    BESIDE: tl.constexpr = LANES * VECTOR
    item = first + tl.arange(0, TILES)[:, None]
    live = item < last
    begin = tl.load(items.begins + item, mask=live, other=0)
    end = tl.load(items.ends + item, mask=live, other=0)
    tile = tl.load(items.tiles + item, mask=live, other=0)
    # of one sum, atoms lie along the last axis, as they do in memory: all loads then get one layout
    AXIS: tl.constexpr = 2 if WIDTH == 1 else 3
    lanes = tl.arange(0, WIDTH)[None, :]
    inner = tl.arange(0, DEEP)[:, None, None] * BESIDE + tl.arange(0, BESIDE)[None, None, :]
    start = begin // VECTOR * VECTOR
    limit = (end + VECTOR - 1) // VECTOR * VECTOR
    if ANY:
        if WIDTH == 1:
            sums = tl.zeros((DEEP, TILES, 1, BESIDE), dtype=work.SUM)
        else:
            sums = tl.zeros((DEEP, TILES, BESIDE, WIDTH), dtype=work.SUM)
        for step in range(0, tl.max(limit - start), DEEP * BESIDE):
            sums += values_between(operands, start, step + inner, begin, end, limit, lanes, work, AXIS)
    else:
        sums = values_between(operands, start, inner, begin, end, limit, lanes, work, AXIS)
    total = tl.sum(tl.sum(sums, 0), 4 - AXIS)  # (TILES, WIDTH)
    if ANY:
        tl.store(parts + tl.cast(-1 - tile, tl.int64) * WIDTH + lanes, total, mask=live & (tile < 0))
        work.TILE(operands, tl.maximum(tile, 0), lanes, total, live & (tile >= 0))
    else:
        work.TILE(operands, tile, lanes, total, live)


@triton.jit
def values_between(operands, start, inner, begin, end, limit, lanes, work: tl.constexpr, AXIS: tl.constexpr):
    """Return the values of the atoms at ``start + inner`` of each tile, zeros before ``begin`` and from ``end`` on.

    AXIS: of lanes; axes before it are deep and tiles.
    """
    atoms = start[None, :, :] + inner
    inside = (atoms >= begin[None, :, :]) & (atoms < end[None, :, :])
    near = atoms < limit[None, :, :]
    atoms, inside, near = tl.expand_dims(atoms, AXIS), tl.expand_dims(inside, AXIS), tl.expand_dims(near, AXIS)
    return values_of(operands, atoms, lanes[None, None, :, :], inside, near, work)


def kinds(width: int) -> list[Kind]:
    """Return the kinds of tiles of works with ``width`` sums: empty ones, those of up to so many atoms, and longer ones.

    The last two have any number of atoms: parts too, and tiles whose last vector would end behind the matrix.
    """
    vectors = _VECTORS if width == 1 else (1,)
    slots = _SLOTS if width < _WIDE else max(_WIDE_SLOTS // width, 1)
    most = max(slots // _THREADS, 1)  # atoms of a thread
    found = [Kind(0, 1, slots, 1, 1)]
    length = min(vectors[0], slots)
    while length < slots:
        each = min(length, max(_UNROLLED, length // 32), most) if width < _WIDE else 1
        if width == _STACKED:
            each = min(length, _UNROLLED)
        for vector in vectors if length <= _NARROW else vectors[:1]:
            deep = max(each // vector, 1)
            found.append(Kind(length, deep, slots // length, length // deep // vector, vector))
        length *= 2
    for vector in (vectors[0], 1):
        each = most if width < _WIDE or vector < vectors[0] else 1
        deep = max(each // vector, 1)
        found.append(Kind(slots, deep, 1, slots // deep // vector, vector))
    return found


class Sorted(Parted):
    """A matrix's tiles in groups, of works with ``width`` sums of a tile. ``size``: tiles of more atoms are split."""

    kernel = execute_group

    def __init__(self, matrix: CSR, size: int, width: int):
        """Sort, on torch's current stream."""
        super().__init__(matrix, size)
        offsets, table, begins = matrix.offsets, kinds(width), self.items.begins
        self.constants = {"SIDES": tuple(tuple(each[1:]) for each in table), "KINDS": len(table), "ANY": len(table) - 2}
        of_items = self._kinds(table, matrix.atoms)
        keys, order = torch.sort(begins // _WINDOW * _KINDS + (_KINDS - 1 - of_items), stable=True)  # the longest first
        self.items = Items(*(each[order].to(offsets.dtype) for each in self.items))
        self.programs = _grouped(keys, torch.tensor([each.tiles for each in table], device=offsets.device))
        self.segments = self.programs.kinds.numel()

    def _kinds(self, table: list[Kind], atoms: int) -> torch.Tensor:
        """Return the kind of each item: the shortest that fits all tiles of its length, wherever these begin.

        Tiles that begin and end at multiples of a vector have none that is not full.
        """
        begins, ends, _ = self.items
        lengths, most = ends - begins, len(table) - 2
        found = torch.full_like(begins, most)
        for number in range(most - 1, 0, -1):  # of equal lengths the widest vector comes first
            length, vector = table[number].length, table[number].vector
            aligned = (begins % vector == 0) & (lengths % vector == 0)
            found = torch.where(torch.where(aligned, lengths, lengths + vector - 1) <= length, number, found)
        found = torch.where(lengths == 0, 0, torch.where(self.of_split, most, found))
        vectors = torch.tensor([each.vector for each in table], device=begins.device)[found]
        beyond = (found > 0) & ((ends + vectors - 1) // vectors * vectors > atoms)
        return torch.where(beyond, most + 1, found)


def _grouped(keys: torch.Tensor, beside: torch.Tensor) -> Groups:
    """Return the groups of items with these keys, as many of each kind as ``beside`` says."""
    found, counts = torch.unique_consecutive(keys, return_counts=True)
    kinds = _KINDS - 1 - found % _KINDS
    groups = -(-counts // beside[kinds])
    run = torch.repeat_interleave(groups)
    within = torch.arange(run.numel(), device=keys.device) - (groups.cumsum(0) - groups)[run]
    firsts = (counts.cumsum(0) - counts)[run] + within * beside[kinds][run]
    end = torch.full((1,), keys.numel(), device=keys.device)
    return Groups(torch.cat([firsts, end]).int(), kinds[run].int())


def equal_atoms(tiles: int, atoms: int, size: int) -> int:
    """Return the number of programs with ``size`` atoms each."""
    return max(-(-atoms // size), 1)


SCHEDULE = Schedule(Sorted, equal_atoms, size=4096, warps=4)
