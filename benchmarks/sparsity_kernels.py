"""Kernels of benchmarks.sparsity: a matrix of dense blocks times a dense one, and those that measure the roofs."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Blocks(NamedTuple):
    """Block row i has the blocks offsets[i] to offsets[i + 1] of ``blocks``, (number, side, side), at these columns."""

    offsets: torch.Tensor
    columns: torch.Tensor
    blocks: torch.Tensor
    shape: tuple[int, int]

    def copy(self) -> Blocks:
        """Return the same in other memory."""
        return Blocks(self.offsets.clone(), self.columns.clone(), self.blocks.clone(), self.shape)


class Tiles(NamedTuple):
    """How a program goes through a block row: columns of the result, blocks of a dot, its loads in flight, and warps."""

    lanes: int
    together: int
    stages: int
    warps: int


FEW, MANY = 32, 256  # columns of b for which these tiles are
TILES = {
    (16, FEW): (Tiles(32, 8, 7, 4), Tiles(32, 4, 9, 2), Tiles(32, 16, 5, 4), Tiles(16, 8, 7, 2)),
    (32, FEW): (Tiles(32, 4, 7, 4), Tiles(16, 4, 7, 2), Tiles(16, 8, 5, 4), Tiles(32, 2, 9, 4)),
    (64, FEW): (Tiles(32, 2, 7, 4), Tiles(16, 2, 7, 4), Tiles(16, 4, 5, 4), Tiles(32, 1, 9, 4)),
    (16, MANY): (Tiles(128, 4, 5, 4), Tiles(64, 8, 5, 4), Tiles(256, 4, 5, 8)),
    (32, MANY): (Tiles(128, 2, 5, 4), Tiles(64, 4, 5, 4), Tiles(256, 2, 5, 8)),
    (64, MANY): (Tiles(128, 1, 5, 4), Tiles(64, 2, 5, 4), Tiles(128, 2, 5, 8)),
}


def blocks_of(weights: torch.Tensor, side: int) -> Blocks:
    """Return the blocks of ``weights`` that are not all zeros."""
    found = weights.to_sparse_bsr((side, side))
    indices = (each.int() for each in (found.crow_indices(), found.col_indices()))
    return Blocks(*indices, found.values().contiguous(), (weights.shape[0], weights.shape[1]))


@triton.jit
def multiply_blocks(
    offsets, columns, blocks, b, c, width,
    SIDE: tl.constexpr, LANES: tl.constexpr, TOGETHER: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A block row of the result, LANES columns of it. TOGETHER blocks side by side, and their rows of b, make one dot.

    Each dot waits for memory twice, for columns and then for rows of b, so half of the STAGES are loads of the latter.
    """
    row, lanes = tl.program_id(0), tl.program_id(1) * LANES + tl.arange(0, LANES)[None, :]
    along = tl.arange(0, TOGETHER * SIDE)
    number, inner = along // SIDE, along % SIDE
    within = tl.arange(0, SIDE)[:, None] * SIDE + inner[None, :]
    last = tl.load(offsets + row + 1)
    sums = tl.zeros((SIDE, LANES), dtype=tl.float32)
    for at in tl.range(tl.load(offsets + row), last, TOGETHER, num_stages=STAGES):
        found = at + number
        column = tl.load(columns + found, mask=found < last, other=0)
        block = tl.load(blocks + found[None, :] * SIDE * SIDE + within, mask=found[None, :] < last, other=0)
        place = (column * SIDE + inner)[:, None] * width + lanes
        sums = tl.dot(block, tl.load(b + place, mask=(found[:, None] < last) & (lanes < width), other=0), sums)
    place = (row * SIDE + tl.arange(0, SIDE)[:, None]) * width + lanes
    tl.store(c + place, sums.to(c.dtype.element_ty), mask=lanes < width)


def tiles_for(side: int, width: int) -> tuple[Tiles, ...]:
    """Return the tiles to try for blocks of ``side`` and ``width`` columns of b."""
    return TILES[side, FEW if width <= FEW else MANY]


def multiply(a: Blocks, b: torch.Tensor, tiles: Tiles) -> torch.Tensor:
    """Return ``a`` times ``b``, contiguous, of the same dtype."""
    side, width = a.blocks.shape[1], b.shape[1]
    lanes, together, stages, warps = tiles
    c = b.new_empty(a.shape[0], width)
    grid = a.shape[0] // side, triton.cdiv(width, lanes)
    multiply_blocks[grid](a.offsets, a.columns, a.blocks, b, c, width, side, lanes, together, stages, num_warps=warps)
    return c


@triton.jit
def multiply_add(numbers, steps, BLOCK: tl.constexpr):
    """Operations on registers alone."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(numbers + places)
    for _ in range(steps):
        value = value * 0.999 + 0.5
    tl.store(numbers + places, value)


@triton.jit
def read(numbers, found, count, rounds, BLOCK: tl.constexpr):
    """Load ``count`` numbers ``rounds`` times, by all programs together, past the caches of multiprocessors."""
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(tl.program_id(0) * BLOCK, count * rounds, tl.num_programs(0) * BLOCK):
        sums += tl.load(numbers + at % count + tl.arange(0, BLOCK), cache_modifier=".cg")
    tl.store(found + tl.program_id(0), tl.sum(sums))


@triton.jit
def follow(places, at, steps):
    """Load a place, which says where the next one is, and so on. at: where it begins, and the next time goes on."""
    place = tl.load(at)
    for _ in range(steps):
        place = tl.load(places + place)
    tl.store(at, place)


@triton.jit
def nothing(numbers):
    """What a launch takes."""
