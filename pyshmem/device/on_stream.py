"""The kernels of collectives that are enqueued on torch's current stream, and how they are chosen and launched.

Every program meets the programs of its number on the other PEs. What has come and gone is counted in the team's scratch, so
a CUDA graph may replay them. See pyshmem.host.on_stream.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.device.collectives import cast_array, gather, swap
from pyshmem.device.context import device_context
from pyshmem.device.launch import CachedKernel, Loaded, flattened
from pyshmem.device.ordering import barrier_all
from pyshmem.device.reductions import fold
from pyshmem.device.scratch import begin, end, exchange, slot_at, slot_of
from pyshmem.device.tiles import WORDS_MEMBERS
from pyshmem.device.words_exchange import reduce_words
from pyshmem.host.teams import Team

NUMBERS = {
    torch.int8: tl.int8, torch.int16: tl.int16, torch.int32: tl.int32, torch.int64: tl.int64,
    torch.uint8: tl.uint8, torch.uint16: tl.uint16, torch.uint32: tl.uint32, torch.uint64: tl.uint64,
    torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.float64: tl.float64,
}  # fmt: skip
BITS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}
KIB = 1024
MORE = 1 << 62
# Measured on four H200s. Reductions: up to so many bytes tiles of so many words of 32 bits, one a thread.
TILES = ((128, 32), (4 * KIB, 64), (32 * KIB, 128), (160 * KIB, 256))
# Above, (bytes, programs, warps, whether all is loaded before anything is sent on).
ARRAYS = (
    (256 * KIB, 32, 4, False), (768 * KIB, 64, 4, False), (1536 * KIB, 64, 8, False),
    (8192 * KIB, 64, 8, True), (MORE, 128, 8, True),
)  # fmt: skip
COPIES = ((1024 * KIB, 32, 8), (MORE, 128, 16))  # of what only moves: (bytes to each, programs, warps)
PLAIN = ["target", "source", "count"]


@triton.jit(do_not_specialize=PLAIN)
def reduce_tiles(
    ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program has a tile, and a slot. target, source: multiples of 16."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count
    to, of = target.to(tl.pointer_type(TYPE)), source.to(tl.pointer_type(TYPE))
    tile = tl.load(tl.multiple_of(of, 16) + lane, mask=inside, other=0)
    total = reduce_words(ctx, slot_at(ctx, tl.program_id(0)), tile, OP)
    tl.store(tl.multiple_of(to, 16) + lane, total, mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def reduce_arrays(
    ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr, APART: tl.constexpr
):
    fold(ctx, "reduce_on_stream", OP, True, array_at(target, TYPE), array_at(source, TYPE), count, APART)


@triton.jit(do_not_specialize=PLAIN)
def gather_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr):
    come(ctx, "fcollect_on_stream")
    gather(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit(do_not_specialize=PLAIN)
def swap_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr):
    come(ctx, "alltoall_on_stream")
    swap(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit(do_not_specialize=[*PLAIN, "root"])
def cast_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, root: tl.int64, TYPE: tl.constexpr):
    come(ctx, "broadcast_on_stream")
    cast_array(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count, root.to(tl.int32))


@triton.jit(do_not_specialize=["target", "source"])
def meet_all(ctx, target: tl.int64, source: tl.int64):
    """target, source: of no use; the others have them."""
    barrier_all(ctx)


@triton.jit
def come(ctx, routine: tl.constexpr):
    """Nobody writes into the target of a PE whose stream has not come here."""
    slot = slot_of(ctx, routine)
    turn = begin(slot)
    exchange(ctx, routine, slot, turn)
    end(ctx, slot, turn)


@triton.jit
def array_at(address, TYPE: tl.constexpr):
    return address.to(tl.pointer_type(TYPE))


# ---- which kernel, of how many programs ----


class Plan(NamedTuple):
    """What _native.launch_prepared takes before and after the stream and the two addresses."""

    prepared: bytes
    counts: tuple[int, ...]
    loaded: Loaded  # keeps the kernel


_cached = cache(CachedKernel)  # when they are used: interpreted kernels have none
_MOVES = {"fcollect": gather_arrays, "alltoall": swap_arrays, "broadcast": cast_arrays}


def reduction(group: Team, op: str, dtype: torch.dtype, count: int, aligned: bool) -> Plan:
    """aligned: whether both arrays begin at multiples of 16 bytes."""
    context, element = device_context(group, None), NUMBERS[dtype]
    nbytes = count * dtype.itemsize
    for most, words in TILES if aligned and group.size <= WORDS_MEMBERS.value else ():
        block = min(4 * words // dtype.itemsize, triton.next_power_of_2(count))
        if nbytes <= most and -(-count // block) <= context.programs:
            loaded = _cached(reduce_tiles).find(context, 0, 0, 0, element, op, block, num_warps=words // 32)
            return _plan(context, loaded, -(-count // block), count)
    programs, warps, apart = next(row[1:] for row in ARRAYS if nbytes <= row[0])
    loaded = _cached(reduce_arrays).find(context, 0, 0, 0, element, op, apart, num_warps=warps)
    return _plan(context, loaded, programs, count)


def movement(group: Team, routine: str, itemsize: int, count: int, root: int) -> Plan:
    """routine: "fcollect", "alltoall", "broadcast".  itemsize, count: of what each PE sends to each."""
    context, element = device_context(group, None), BITS[itemsize]
    programs, warps = next(row[1:] for row in COPIES if count * itemsize <= row[0])
    counts = (count, root) if routine == "broadcast" else (count,)
    loaded = _cached(_MOVES[routine]).find(context, 0, 0, *(0 for _ in counts), element, num_warps=warps)
    return _plan(context, loaded, programs, *counts)


def barrier(group: Team) -> Plan:
    context = device_context(group, None)
    return _plan(context, _cached(meet_all).find(context, 0, 0, num_warps=4), 1)


def _plan(context: Any, loaded: Loaded, programs: int, *counts: int) -> Plan:
    most = max(min(programs, context.programs), 1)
    return Plan(loaded.prepared(most, flattened(context, loaded.plan[0])), counts, loaded)
