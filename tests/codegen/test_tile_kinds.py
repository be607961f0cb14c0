"""Tiles of every kind compile: scalars of few bits in loops, numbers that the compiler knows, floats of 8 bits that move."""

import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from compiling import assembly


@triton.jit
def scalars(ctx, x, out, n, pe):
    mine = tl.load(x)
    for _ in range(n):
        mine = dev.sendrecv(ctx, dev.broadcast(ctx, dev.all_reduce(ctx, mine, "max"), 0), pe, pe)
        mine = dev.reduce_scatter(ctx, tl.full([ctx.members], 0, mine.dtype) + mine, "max")
    tl.store(out, mine)


@triton.jit
def known(ctx, out, one):
    tl.store(out, dev.all_reduce(ctx, one, "sum") + dev.broadcast(ctx, one, 0))
    tl.store(out + tl.arange(0, ctx.members), dev.all_gather(ctx, one))


@triton.jit
def moved(ctx, x, out, pe):
    lane, row = tl.arange(0, 64), tl.arange(0, ctx.members)
    tile = tl.load(x + lane)
    tl.store(out + row[:, None] * 64 + lane[None, :], dev.all_to_all(ctx, dev.all_gather(ctx, tile)))
    tl.store(out + lane, dev.sendrecv(ctx, dev.broadcast(ctx, tile, 0), pe, pe))


@triton.jit
def combined(ctx, x, out):
    lane = tl.arange(0, 64)
    tile = tl.load(x + lane)
    tl.store(out + lane, dev.all_reduce(ctx, tile, "sum"))
    tl.store(out + lane, dev.scan(ctx, tile, "min", exclusive=True))
    tl.store(out + tl.arange(0, 64 // ctx.members), dev.reduce_scatter(ctx, tile, "max", axis=0))


@triton.jit
def masked(ctx, x, out, pe):
    lane = tl.arange(0, 64)
    mask = dev.sendrecv(ctx, dev.all_reduce(ctx, tl.load(x + lane) > 0, "and"), pe, pe)
    mask = dev.scan(ctx, dev.all_to_all(ctx, mask, axis=0), "or", exclusive=True)
    tl.store(out + tl.arange(0, 64 * ctx.members), dev.all_gather(ctx, mask, axis=0))
    tl.store(out, dev.all_reduce(ctx, pe > 0, "xor"))


# What a scalar and a number are, the compiler decides before it knows the GPU.


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target", ["nvidia"])
def test_a_scalar_keeps_its_dtype_from_turn_to_turn(dtype, target):
    assert assembly(scalars, target, dtype, dtype, 3, 1)


@pytest.mark.parametrize("one", [1, 2, 1.5])
@pytest.mark.parametrize("target", ["nvidia"])
def test_a_kernels_argument_is_a_tile_whatever_its_value(one, target):
    assert assembly(known, target, torch.float32, one)


def test_floats_of_eight_bits_move(target):
    assert assembly(moved, target, torch.float8_e5m2, torch.float8_e5m2, 1)


def test_floats_of_eight_bits_are_combined(target):
    assert assembly(combined, target, torch.float8_e5m2, torch.float8_e5m2)


def test_masks_move_and_are_combined(target):
    assert assembly(masked, target, torch.int32, torch.int32, 3)
