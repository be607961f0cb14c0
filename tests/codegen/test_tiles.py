"""Collectives on tiles: how they are compiled, and that what they exchange is ordered as the memory model wants."""

import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from compiling import assembly, in_order, instructions, places
from test_compiles import refuse_spills


@triton.jit
def all_reduce(ctx, x, y, count: tl.constexpr, op: tl.constexpr):
    lane = tl.arange(0, count)
    tl.store(y + lane, dev.all_reduce(ctx, tl.load(x + lane), op))


@triton.jit
def rows(ctx, x, y, z, count: tl.constexpr):
    at = (tl.arange(0, ctx.members) * count)[:, None] + tl.arange(0, count)[None, :]
    tl.store(y + at, dev.all_to_all(ctx, tl.load(x + at)))
    tl.store(z + tl.arange(0, count), dev.reduce_scatter(ctx, tl.load(x + at), "sum"))
    tl.store(y + at, dev.all_gather(ctx, tl.load(z + tl.arange(0, count))))


@triton.jit
def one_way(ctx, x, y, to, of, count: tl.constexpr):
    lane = tl.arange(0, count)
    tile = dev.sendrecv(ctx, tl.load(x + lane), to, of)
    dev.send(ctx, tile, to)
    tile = dev.recv(ctx, tile, of)
    tl.store(y + lane, dev.broadcast(ctx, tile, of))


F32, F16, BF16, I64 = torch.float32, torch.float16, torch.bfloat16, torch.int64
SMALL, MIDDLE, LARGE = (all_reduce, F32, F32, 512, "sum"), (all_reduce, F32, F32, 2048, "sum"), (all_reduce, BF16, BF16, 16384, "sum")
CASES = [
    SMALL, MIDDLE, LARGE, (all_reduce, F16, F16, 8, "max"), (all_reduce, I64, I64, 128, "xor"),
    (rows, F32, F32, F32, 512), (one_way, F32, F32, 1, 3, 1024),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}-{case[-2]}-{case[-1]}")
def test_tile_collectives_compile_and_spill_nothing(case, target):
    refuse_spills(assembly(case[0], target, *case[1:]), target)
