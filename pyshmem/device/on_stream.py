"""Collectives enqueued on torch's current stream, one kernel each: nobody waits for them, and CUDA graphs take them in.

The idea of such routines is NVSHMEM's. Every program meets the programs of its number on the other PEs. Counts of turns are
in the team's scratch, so a graph may be replayed. See shmem.reduce_on_stream.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pyshmem.device.collectives import gather, swap
from pyshmem.device.reductions import fold
from pyshmem.device.scratch import begin, end, exchange, slot_of
from pyshmem.device.tiles import all_reduce

ELEMENTS = {
    torch.int8: tl.int8, torch.int16: tl.int16, torch.int32: tl.int32, torch.int64: tl.int64,
    torch.uint8: tl.uint8, torch.uint16: tl.uint16, torch.uint32: tl.uint32, torch.uint64: tl.uint64,
    torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.float64: tl.float64,
}  # fmt: skip
ADDRESSES = ["target", "source", "count"]


@triton.jit(do_not_specialize=ADDRESSES)
def reduce_tiles(
    ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program has a tile. target, source: addresses of multiples of 16 bytes."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count
    tile = tl.load(array_at(source, TYPE) + lane, mask=inside, other=0)
    tl.store(array_at(target, TYPE) + lane, all_reduce(ctx, tile, OP), mask=inside)


@triton.jit(do_not_specialize=ADDRESSES)
def reduce_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr):
    fold(ctx, "reduce_on_stream", OP, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit(do_not_specialize=ADDRESSES)
def gather_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr):
    meet(ctx, "fcollect_on_stream")
    gather(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit(do_not_specialize=ADDRESSES)
def swap_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr):
    meet(ctx, "alltoall_on_stream")
    swap(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit
def meet(ctx, routine: tl.constexpr):
    """Nobody writes into the target of a PE whose stream has not come so far."""
    slot = slot_of(ctx, routine)
    turn = begin(slot)
    exchange(ctx, routine, slot, turn)
    end(ctx, slot, turn)


@triton.jit
def array_at(address, TYPE: tl.constexpr):
    return tl.multiple_of(address.to(tl.pointer_type(TYPE)), 16)
