"""The kernel of PartitionedTensor.redistribute: it moves elements between this PE's part of one layout and all of another.

Elements are moved as words, and numbers of PEs, blocks and pitches are in memory, so that there are few binaries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.kernels.bound_kernels import Bound, bind
from pyshmem.kernels.compiled import CachedKernel

FIELDS, HEAD = tl.constexpr(9), tl.constexpr(3)
WARPS = 8
# What a program moves: rows and columns of a tile in words, and how often. Two H200s move the first fastest.
TILES = ((2, 1024, 2), (32, 64, 2))
ROW = (1, 4096, 1)  # of a tensor that is one row
_WORDS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64, 16: tl.int64}

_cached = cache(CachedKernel)


@triton.jit
def move(
    plan,
    OUTER: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    TURNS: tl.constexpr,
    UNIT: tl.constexpr,
    PUSH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Copy R x C words of this PE's part, TURNS times: to the other parts with PUSH, and else from them.

    plan: see arguments. Its head is the address of this PE's part, the tile to begin with, and how many tiles a row has.
    OUTER: how many dimensions are before the last one.  UNIT: the bytes that lie together in all parts; 16 are two words.
    WIDE: indices need 64 bits.
    """
    index: tl.constexpr = tl.int64 if WIDE else tl.int32
    word: tl.constexpr = word_of(UNIT)
    pair: tl.constexpr = UNIT // (word.primitive_bitwidth // 8)
    tile = (tl.program_id(0) + tl.load(plan + 1).to(tl.int32)) % tl.num_programs(0)
    across = tl.load(plan + 2).to(tl.int32)
    col = tile % across * C + tl.arange(0, C)
    near_col, pe_of_col, far_col = places(plan, OUTER, col // pair, index)
    near_col, far_col = near_col * pair + col % pair, far_col * pair + col % pair
    for turn in range(TURNS):
        row = (tile // across * TURNS + turn).to(index) * R + tl.arange(0, R)
        near, pe, far, rest = tl.zeros([R], tl.int64), tl.zeros([R], tl.int32), tl.zeros([R], tl.int64), row
        for back in tl.static_range(OUTER):
            count = field(plan, OUTER - 1 - back, 0, index)
            near_place, pe_there, far_place = places(plan, OUTER - 1 - back, rest % count, index)
            near, pe, far, rest = near + near_place, pe + pe_there, far + far_place, rest // count
        inside = (rest == 0)[:, None] & (col // pair < field(plan, OUTER, 0, index))[None, :]
        part = tl.load(plan + HEAD + (OUTER + 1) * FIELDS + pe[:, None] + pe_of_col[None, :], mask=inside, other=0)
        there = part.to(tl.pointer_type(word)) + (far[:, None] * pair + far_col[None, :])
        here = tl.load(plan).to(tl.pointer_type(word)) + (near[:, None] * pair + near_col[None, :])
        if pair > 1:
            there = tl.max_contiguous(tl.multiple_of(there, [1, UNIT]), [1, pair])
            here = tl.max_contiguous(tl.multiple_of(here, [1, UNIT]), [1, pair])
        if PUSH:
            tl.store(there, tl.load(here, mask=inside), mask=inside)
        else:
            tl.store(here, tl.load(there, mask=inside), mask=inside)


@triton.jit
def places(plan, dim: tl.constexpr, number, index: tl.constexpr):
    """(distance in this PE's part, PE, distance in that PE's part) of this PE's indices of a dimension, by their numbers."""
    block, n, place = field(plan, dim, 1, index), field(plan, dim, 2, index), field(plan, dim, 3, index)
    whole = number + (number // block * (n - 1) + place) * block
    block, n = field(plan, dim, 5, index), field(plan, dim, 6, index)
    turn = whole // block
    rounds = turn // n
    pe = (turn - rounds * n) * field(plan, dim, 7, index)
    far = (whole - (turn - rounds) * block).to(tl.int64) * field(plan, dim, 8, tl.int64)
    return number.to(tl.int64) * field(plan, dim, 4, tl.int64), pe.to(tl.int32), far


@triton.jit
def field(plan, dim: tl.constexpr, number: tl.constexpr, index: tl.constexpr):
    return tl.load(plan + HEAD + dim * FIELDS + number).to(index)


@triton.constexpr_function
def word_of(unit):
    return _WORDS[unit]


def bound(
    part: torch.Tensor, dims: Sequence[Sequence[int]], parts: Sequence[int], start: float, unit: int, push: bool
) -> Bound:
    """Bind the kernel to ``arguments``."""
    grid, given = arguments(part, dims, parts, start, unit, push)
    return bind(_cached(move).find(*given, num_warps=WARPS), grid, given[:1])


def arguments(
    part: torch.Tensor, dims: Sequence[Sequence[int]], parts: Sequence[int], start: float, unit: int, push: bool
) -> tuple[tuple[int], tuple[Any, ...]]:
    """Return the kernel's grid and its arguments.

    part: this PE's.  unit: bytes.  start: of all tiles the share before the one that this PE begins with.
    dims: of two to four dimensions: how many indices this PE has; block, PEs, place and pitch of its layout; block, PEs, PEs
        to the next one and pitch of the other. Those of the last one, and pitches, count units.
    parts: the addresses of the other parts. PEs that the dimensions name count from the first.
    """
    rows, cols = math.prod(dim[0] for dim in dims[:-1]), dims[-1][0]
    pair = 2 if unit == 16 else 1
    tile = ROW if rows == 1 else TILES[2 * cols * pair <= TILES[0][1]]
    across = triton.cdiv(cols * pair, tile[1])
    tiles = across * triton.cdiv(rows, tile[0] * tile[2])
    head = [part.data_ptr(), int(start * tiles), across]
    numbers = [*head, *itertools.chain(*dims), *parts]
    plan = torch.tensor(numbers, dtype=torch.int64, device=part.device)
    wide = max(rows, *(dim[1] * dim[2] * -(-dim[0] // dim[1]) for dim in dims)) * pair >= 1 << 30
    return (tiles,), (plan, len(dims) - 1, *tile, unit, push, wide)
