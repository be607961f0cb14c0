"""Kernels of benchmarks.sparsity: a matrix of dense blocks times a dense one, by tl.dot, and multiply-adds in registers."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

_LANES = 32  # columns of a program


class Blocks(NamedTuple):
    """Block row i has the blocks offsets[i] to offsets[i + 1] of ``blocks``, (number, side, side), at these columns."""

    offsets: torch.Tensor
    columns: torch.Tensor
    blocks: torch.Tensor
    shape: tuple[int, int]


def blocks_of(weights: torch.Tensor, side: int) -> Blocks:
    """Return the blocks of ``weights`` that are not all zeros."""
    found = weights.to_sparse_bsr((side, side))
    indices = (each.int() for each in (found.crow_indices(), found.col_indices()))
    return Blocks(*indices, found.values().contiguous(), (weights.shape[0], weights.shape[1]))


@triton.jit
def multiply_blocks(
    offsets, columns, blocks, b, c, width, SIDE: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """A block row of the result, LANES columns of it."""
    row, lanes = tl.program_id(0), tl.program_id(1) * LANES + tl.arange(0, LANES)[None, :]
    down, along = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    sums = tl.zeros((SIDE, LANES), dtype=tl.float32)
    for at in range(tl.load(offsets + row), tl.load(offsets + row + 1)):
        block = tl.load(blocks + at * SIDE * SIDE + down * SIDE + along)
        place = (tl.load(columns + at) * SIDE + down) * width + lanes
        sums = tl.dot(block, tl.load(b + place, mask=lanes < width, other=0), sums)
    tl.store(c + (row * SIDE + down) * width + lanes, sums.to(c.dtype.element_ty), mask=lanes < width)


def multiply(a: Blocks, b: torch.Tensor) -> torch.Tensor:
    """Return ``a`` times ``b``, contiguous, of the same dtype."""
    side, width = a.blocks.shape[1], b.shape[1]
    c = b.new_empty(a.shape[0], width)
    grid = a.shape[0] // side, -(-width // _LANES)
    multiply_blocks[grid](a.offsets, a.columns, a.blocks, b, c, width, side, _LANES, num_warps=1)
    return c


@triton.jit
def multiply_add(numbers, steps, BLOCK: tl.constexpr):
    """Operations on registers alone."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(numbers + places)
    for _ in range(steps):
        value = value * 0.999 + 0.5
    tl.store(numbers + places, value)
