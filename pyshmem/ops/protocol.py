"""The protocol of a call on all PEs, in kernels. Calls of one plan are numbered in device memory, so that graphs replay.

A plan's words are uint64 in symmetric memory: first those of one word, then n_pes words of ARRIVED, then as many of DONE.
Word ARRIVED + p says that PE p has reached the call of this number: its results may be overwritten. Word DONE + p says that
everything PE p sends in this call has arrived here.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev

ROUND = tl.constexpr(0)  # the number of calls that have ended here
TALLY = tl.constexpr(1)  # the programs that have left this call
STAMP = tl.constexpr(2)  # the number of the next call, which the copy engine copies behind data
PAIRS = tl.constexpr(8)  # where ARRIVED begins: another cache line


def words_of(n_pes: int) -> int:
    """Return the number of words of a plan."""
    return PAIRS.value + 2 * n_pes


@triton.jit
def enter(ctx, words):
    """Return the number of this call, from 1 on."""
    return dev.signal_fetch(ctx, words + ROUND) + 1


@triton.jit
def tell_peers(ctx, flag, number):
    """Set a flag to ``number`` on every peer, as a release of what this program has stored."""
    for i in range(1, dev.n_pes(ctx)):
        dev.signal_set(ctx, flag, number, (dev.my_pe(ctx) + i) % dev.n_pes(ctx))


@triton.jit
def hear_peers(ctx, words, number):
    """Wait until every peer has set its word to ``number`` or more."""
    span = dev.trace_begin(ctx, "meet")
    for i in range(1, dev.n_pes(ctx)):
        dev.signal_wait_until(ctx, words + (dev.my_pe(ctx) + i) % dev.n_pes(ctx), dev.CMP_GE, number)
    dev.trace_end(ctx, span)


@triton.jit
def arrive(ctx, words, number):
    """Let peers write to this PE's result from now on. One program calls it."""
    tell_peers(ctx, words + PAIRS + dev.my_pe(ctx), number)


@triton.jit
def await_arrivals(ctx, words, number):
    """Wait until the results of all peers may be written."""
    hear_peers(ctx, words + PAIRS, number)


@triton.jit
def leave(ctx, words, number, programs, MEET: tl.constexpr):
    """End the call: each of ``programs`` calls it once, and the last one ends it. MEET: it waits for all peers."""
    dev.fence(ctx)
    before = dev.atomic_fetch_add(ctx, words + TALLY, 1, dev.my_pe(ctx))
    if before + 1 == programs:
        tl.store(words + TALLY, 0)
        if MEET:
            done = words + PAIRS + dev.n_pes(ctx)
            tell_peers(ctx, done + dev.my_pe(ctx), number)
            hear_peers(ctx, done, number)
        tl.store(words + STAMP, number + 1)
        tl.store(words + ROUND, number)
