"""Tiles sorted by length into groups, one for each program, and the kernel that sums the tiles of a group side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular.granularity import WIDE
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.parts import Items, Parted, values_at
from pyshmem.runtime import interpreter

# atoms of a group, and how many of a tile a thread takes before its lanes are added
_SLOTS, _THREADS, _UNROLLED = (16, 4, 2) if interpreter.active() else (1024, 128, 4)
_WIDE_SLOTS = 2048  # sums of a group, of tiles with many
_WINDOW = 64 if interpreter.active() else 1 << 20  # atoms
_KINDS = 32  # more than there are


class Sides(NamedTuple):
    """How the atoms of tiles of one kind lie beside each other: ``deep`` of each of ``lanes`` of each of ``tiles``."""

    deep: int
    tiles: int
    lanes: int


class Groups(NamedTuple):
    """firsts: the first item of each group, and the end of the last.  kinds: the binary logarithm of their lengths."""

    firsts: Any
    kinds: Any


@triton.jit
def execute_group(
    items, groups, parts, operands, work: tl.constexpr, SIDES: tl.constexpr, MOST: tl.constexpr, EARLY: tl.constexpr
):
    """Sum the tiles of a group, and finish them or store the sums of parts.

    SIDES: of each kind, (deep, tiles, lanes); the last, MOST, has one tile, of any number of atoms.  EARLY: as in Method.
    """
    group = tl.program_id(0)
    kind, first, last = (
        tl.load(groups.kinds + group), tl.load(groups.firsts + group), tl.load(groups.firsts + group + 1)
    )  # fmt: skip
    if EARLY:  # where groups lie never changes; the preceding kernel may write everything else
        gpu.follow()
    for number in tl.static_range(MOST + 1):
        if kind == number:
            sum_items(
                items, first, last, parts, operands, work,
                SIDES[number][0], SIDES[number][1], SIDES[number][2], number == MOST,
            )  # fmt: skip


@triton.jit
def sum_items(
    items, first, last, parts, operands, work: tl.constexpr,
    DEEP: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr, ANY: tl.constexpr,
):  # fmt: skip
    """Sum the items from ``first`` to before ``last``. ANY: it is one, of any length, and may be a part of a tile."""
    WIDTH: tl.constexpr = work.WIDTH
    item = first + tl.arange(0, TILES)[:, None]
    live = item < last
    begin = tl.load(items.begins + item, mask=live, other=0)
    end = tl.load(items.ends + item, mask=live, other=0)
    tile = tl.load(items.tiles + item, mask=live, other=0)
    lanes = tl.arange(0, WIDTH)
    inner = tl.arange(0, DEEP)[:, None, None, None] * LANES + tl.arange(0, LANES)[None, None, :, None]
    stop = end[None, :, :, None]
    if ANY:
        sums = tl.zeros((DEEP, TILES, LANES, WIDTH), dtype=work.SUM)
        for start in range(tl.max(begin), tl.max(end), DEEP * LANES):
            sums += values_at(operands, start + inner + stop * 0, stop, lanes[None, None, None, :], work)
    else:
        sums = values_at(operands, begin[None, :, :, None] + inner, stop, lanes[None, None, None, :], work)
    total = tl.sum(tl.sum(sums, 0), 1)  # (TILES, WIDTH)
    if ANY:
        tl.store(parts + tl.cast(-1 - tile, tl.int64) * WIDTH + lanes[None, :], total, mask=live & (tile < 0))
        work.TILE(operands, tl.maximum(tile, 0), lanes[None, :], total, live & (tile >= 0))
    else:
        work.TILE(operands, tile, lanes[None, :], total, live)


def sides(width: int) -> tuple[Sides, ...]:
    """Return how tiles of each kind lie beside each other, of works with ``width`` sums of a tile."""
    slots = _SLOTS if width < WIDE else max(_WIDE_SLOTS // width, 1)
    found = []
    for kind in range(slots.bit_length()):
        length = 1 << kind
        deep = min(length, max(_UNROLLED, length // 32), max(slots // _THREADS, 1)) if width < WIDE else 1
        found.append(Sides(deep, slots // length, length // deep))
    return tuple(found)


class Sorted(Parted):
    """A matrix's tiles in groups, of works with ``width`` sums of a tile. ``size``: tiles of more atoms are split."""

    kernel = execute_group

    def __init__(self, matrix: CSR, size: int, width: int):
        """Sort. Waits for torch's current stream."""
        super().__init__(matrix, size)
        offsets, shapes, (begins, ends, _) = matrix.offsets, sides(width), self.items
        most = len(shapes) - 1
        self.constants = {"SIDES": tuple(map(tuple, shapes)), "MOST": most}
        kinds = torch.ceil(torch.log2((ends - begins).clamp(min=1).double())).long().clamp(max=most)
        kinds = torch.where(self.of_split, most, kinds)
        keys, order = torch.sort(begins // _WINDOW * _KINDS + (_KINDS - 1 - kinds), stable=True)  # the longest first
        self.items = Items(*(each[order].to(offsets.dtype) for each in self.items))
        self.programs = _grouped(keys, torch.tensor([each.tiles for each in shapes], device=offsets.device))
        self.segments = self.programs.kinds.numel()
        if offsets.is_cuda:  # later products may be on other streams
            torch.cuda.current_stream(offsets.device).synchronize()


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
