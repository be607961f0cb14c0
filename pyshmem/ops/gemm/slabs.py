"""Rows that a kernel sends as slabs of contiguous memory: which program sends which, and the flags that count them.

A piece is the slabs of a tile's rows. Its flag counts the slabs of it that have come, in all calls.
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
def parcel_of(slabs, tiles, program, programs, turn):
    """Return the first of ``slabs`` that a program sends in a turn, and that of the next turn."""
    senders, turns = tl.minimum(tiles, programs), turns_of(tiles, program, programs)
    return part_of(slabs, program, senders, turn, turns), part_of(slabs, program, senders, turn + 1, turns)


@triton.jit
def part_of(slabs, program, programs, turn, turns):
    """Return the slab with which a turn of a program begins: programs, then their first ``turns``, have equal parts."""
    first = tl.cast(slabs, tl.int64) * program // programs
    length = tl.cast(slabs, tl.int64) * (program + 1) // programs - first
    return tl.cast(first + length * tl.minimum(turn, turns) // turns, tl.int32)


@triton.jit
def slabs_in(rows, K, SIZE: tl.constexpr):
    """Return how many slabs of SIZE elements hold the first ``rows`` rows of K elements."""
    return tl.cast(tl.cdiv(tl.cast(rows, tl.int64) * K, SIZE), tl.int32)


@triton.jit
def await_slabs(ctx, flags, number, first, count, tall, K, batch, SIZE: tl.constexpr):
    """Wait until ``count`` rows from ``first`` on, of the ``tall`` rows of a PE, have come ``number`` times."""
    last = tl.minimum(first + count, tall)
    slabs, begin = slabs_in(tall, K, SIZE), tl.cast(tl.cast(first, tl.int64) * K // SIZE, tl.int32)
    for piece in range(begin // batch, tl.where(last > first, tl.cdiv(slabs_in(last, K, SIZE), batch), 0)):
        due = tl.minimum(slabs - piece * batch, batch)
        dev.signal_wait_until(ctx, flags + piece, dev.CMP_GE, number * tl.cast(due, tl.uint64))


@triton.jit
def tell_slabs(ctx, flags, begin, end, size):
    """Add the slabs begin to end - 1, which have been sent, to the flags of their pieces of ``size`` slabs on all peers."""
    for piece in range(begin // size, tl.where(end > begin, tl.cdiv(end, size), 0)):
        count = tl.minimum(end, piece * size + size) - tl.maximum(begin, piece * size)
        for i in range(1, dev.n_pes(ctx)):
            dev.signal_add(ctx, flags + piece, tl.cast(count, tl.uint64), (dev.my_pe(ctx) + i) % dev.n_pes(ctx))
