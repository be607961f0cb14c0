"""Rows that a kernel sends as slabs of contiguous memory: which program sends which, and the flags that count them.

A chunk is the slabs of a tile's rows. Its flag counts the slabs of it that have come, in all calls. What lies behind the
last slab of a call counts as come with it, so that each call adds as much to every flag, whatever its rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev


@triton.jit
def turns_of(tiles, program, programs):
    """Return in how many turns a program sends: not in a last turn that few programs have, so that peers wait less."""
    return tl.minimum(tl.cdiv(tiles - program, programs), tl.maximum((tiles + programs // 2) // programs, 1))


@triton.jit
def slabs_of_turn(slabs, tiles, program, programs, turn):
    """Return the first of ``slabs`` that a program sends in a turn, and that of the next turn."""
    senders, turns = tl.minimum(tiles, programs), turns_of(tiles, program, programs)
    return first_slab(slabs, program, senders, turn, turns), first_slab(slabs, program, senders, turn + 1, turns)


@triton.jit
def first_slab(slabs, program, programs, turn, turns):
    """Return the slab with which a turn of a program begins: programs, then their first ``turns``, have equal parts."""
    first = tl.cast(slabs, tl.int64) * program // programs
    length = tl.cast(slabs, tl.int64) * (program + 1) // programs - first
    return tl.cast(first + length * tl.minimum(turn, turns) // turns, tl.int32)


@triton.jit
def slabs_in(rows, K, SIZE: tl.constexpr):
    """Return how many slabs of SIZE elements hold the first ``rows`` rows of K elements."""
    return tl.cast(tl.cdiv(tl.cast(rows, tl.int64) * K, SIZE), tl.int32)


@triton.jit
def await_slabs(ctx, flags, epoch, first, count, tall, K, batch, SIZE: tl.constexpr):
    """Wait until ``count`` rows from ``first`` on, of the ``tall`` rows of a PE, have come ``epoch`` times."""
    last = tl.minimum(first + count, tall)
    begin = tl.cast(tl.cast(first, tl.int64) * K // SIZE, tl.int32)
    for chunk in range(begin // batch, tl.where(last > first, tl.cdiv(slabs_in(last, K, SIZE), batch), 0)):
        dev.signal_wait_until(ctx, flags + chunk, dev.CMP_GE, epoch * tl.cast(batch, tl.uint64))


@triton.jit
def tell_slabs(ctx, flags, begin, end, slabs, chunks, size):
    """Add the slabs begin to end - 1, which have been sent, to the flags of their chunks of ``size`` slabs on all peers.

    slabs: of the call, in up to ``chunks`` chunks.
    """
    end = tl.where((end == slabs) & (end > begin), chunks * size, end)
    for chunk in range(begin // size, tl.where(end > begin, tl.cdiv(end, size), 0)):
        count = tl.minimum(end, chunk * size + size) - tl.maximum(begin, chunk * size)
        for i in range(1, dev.n_pes(ctx)):
            dev.signal_add(ctx, flags + chunk, tl.cast(count, tl.uint64), (dev.my_pe(ctx) + i) % dev.n_pes(ctx))
