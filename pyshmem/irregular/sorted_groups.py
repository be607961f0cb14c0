"""Tiles sorted by length into groups, one for each program, and the kernel that sums the tiles of a group side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular.granularity import WIDE
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.parts import Items, Parted
from pyshmem.irregular.values import values_of
from pyshmem.runtime import interpreter

# atoms of a group, and how many of a tile a thread takes before its lanes are added
_SLOTS, _THREADS, _UNROLLED = (16, 4, 2) if interpreter.active() else (1024, 128, 4)
_WIDE_SLOTS = 2048  # sums of a group, of tiles with many
_VECTOR = 4  # atoms that a thread loads at once, of works with one sum
_WINDOW = 64 if interpreter.active() else 1 << 20  # atoms
_KINDS = 32  # more than there are


class Sides(NamedTuple):
    """How the atoms of tiles of one kind lie beside each other: ``deep`` of each of ``lanes`` of each of ``tiles``.

    A lane has ``vector`` neighbouring atoms each time, from a multiple of it on.
    """

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

    SIDES: of each of KINDS, (deep, tiles, lanes, vector). From ANY on a group is one tile, of any number of atoms.
    EARLY: as in Method.
    """
    group = tl.program_id(0)
    kind, first, last = (
        tl.load(groups.kinds + group), tl.load(groups.firsts + group), tl.load(groups.firsts + group + 1)
    )  # fmt: skip
    if EARLY:  # where groups lie never changes; the preceding kernel may write everything else
        gpu.follow()
    for number in tl.static_range(KINDS):
        if kind == number:
            sum_items(
                items, first, last, parts, operands, work,
                SIDES[number][0], SIDES[number][1], SIDES[number][2], SIDES[number][3], number >= ANY,
            )  # fmt: skip


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


def lengths(width: int) -> tuple[int, ...]:
    """Return the most atoms of tiles of each kind, counted from where loads begin, of works with ``width`` sums.

    Longer tiles, and parts, are of the last kind too.
    """
    slots = _SLOTS if width < WIDE else max(_WIDE_SLOTS // width, 1)
    every = [1 << kind for kind in range(slots.bit_length())]
    return tuple(length for length in every if length == 1 or length >= _vector(width))  # 1: of empty tiles at least


def sides(width: int) -> tuple[Sides, ...]:
    """Return how tiles of each kind lie beside each other, of works with ``width`` sums of a tile.

    One kind more is for tiles whose last vector would end behind the matrix.
    """
    found, slots = [], lengths(width)[-1]
    most = max(slots // _THREADS, 1)  # atoms of a thread
    for length in lengths(width):
        vector = min(_vector(width), length)
        each = min(length, max(_UNROLLED, length // 32), most) if width < WIDE else 1
        deep = max(each // vector, 1)
        found.append(Sides(deep, slots // length, length // deep // vector, vector))
    each = min(most, slots)
    return (*found, Sides(each, 1, slots // each, 1))


def _vector(width: int) -> int:
    return _VECTOR if width == 1 else 1


class Sorted(Parted):
    """A matrix's tiles in groups, of works with ``width`` sums of a tile. ``size``: tiles of more atoms are split."""

    kernel = execute_group

    def __init__(self, matrix: CSR, size: int, width: int):
        """Sort. Waits for torch's current stream."""
        super().__init__(matrix, size)
        offsets, shapes, begins = matrix.offsets, sides(width), self.items.begins
        self.constants = {"SIDES": tuple(map(tuple, shapes)), "KINDS": len(shapes), "ANY": len(shapes) - 2}
        kinds = self._kinds(lengths(width), _vector(width), matrix.atoms)
        keys, order = torch.sort(begins // _WINDOW * _KINDS + (_KINDS - 1 - kinds), stable=True)  # the longest first
        self.items = Items(*(each[order].to(offsets.dtype) for each in self.items))
        self.programs = _grouped(keys, torch.tensor([each.tiles for each in shapes], device=offsets.device))
        self.segments = self.programs.kinds.numel()
        if offsets.is_cuda:  # later products may be on other streams
            torch.cuda.current_stream(offsets.device).synchronize()

    def _kinds(self, lengths: tuple[int, ...], vector: int, atoms: int) -> torch.Tensor:
        """Return the kind of each item."""
        begins, ends, _ = self.items
        slots = torch.where(ends > begins, (ends - begins // vector * vector).clamp(min=vector), 0)
        most = len(lengths) - 1
        kinds = torch.bucketize(slots, torch.tensor(lengths, device=slots.device)).clamp(max=most)
        kinds = torch.where(self.of_split, most, kinds)
        beyond = (kinds > 0) & ((ends + vector - 1) // vector * vector > atoms)  # the first kind has no vectors
        return torch.where(beyond, most + 1, kinds)


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
