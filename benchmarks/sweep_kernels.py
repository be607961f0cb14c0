"""Kernels that benchmarks.gpu_pt2pt and gpu_libraries time: each makes a call many times, so launches do not count."""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev

P, G, FETCH_ADD, COMPARE_SWAP = (tl.constexpr(number) for number in range(4))


@triton.jit
def puts(ctx, dest, source, nelems, pe, turns, QUIET: tl.constexpr):
    """Each program puts its share of ``source`` to ``pe``, ``turns`` times."""
    share = tl.cdiv(tl.cdiv(nelems, tl.num_programs(0)), 64) * 64
    start = tl.program_id(0) * share
    count = tl.maximum(tl.minimum(share, nelems - start), 0)
    for _ in range(turns):
        dev.put(ctx, dest + start, source + start, count, pe)
        if QUIET:
            dev.quiet(ctx)


@triton.jit
def gets(ctx, dest, source, nelems, pe, turns, parts, stride):
    """Each program gets its share of ``source`` on ``pe``, ``turns`` times, each from another part.

    A GPU caches what it reads: of one part, all but the first read would be local.
    parts: of source, ``stride`` elements from one to the next.
    """
    share = tl.cdiv(tl.cdiv(nelems, tl.num_programs(0)), 64) * 64
    start = tl.program_id(0) * share
    count = tl.maximum(tl.minimum(share, nelems - start), 0)
    for turn in range(turns):
        part = source + (turn % parts).to(tl.int64) * stride
        dev.get(ctx, dest + start, part + start, count, pe)


@triton.jit
def stores(ctx, dest, source, nelems, pe, turns, BLOCK: tl.constexpr):
    """Programs load tiles and store them on ``pe``."""
    for _ in range(turns):
        for start in range(tl.program_id(0) * BLOCK, nelems, tl.num_programs(0) * BLOCK):
            at = start + tl.arange(0, BLOCK)
            dev.store(ctx, dest + at, tl.load(source + at, mask=at < nelems), pe, at < nelems)


@triton.jit
def loads(ctx, dest, source, nelems, pe, turns, parts, stride, BLOCK: tl.constexpr):
    """Programs load tiles on ``pe`` and store them here, each turn from another part of ``source`` as in gets."""
    for turn in range(turns):
        part = source + (turn % parts).to(tl.int64) * stride
        for start in range(tl.program_id(0) * BLOCK, nelems, tl.num_programs(0) * BLOCK):
            at = start + tl.arange(0, BLOCK)
            tl.store(dest + at, dev.load(ctx, part + at, pe, at < nelems), mask=at < nelems)


@triton.jit
def words(ctx, word, seen, pe, turns, KIND: tl.constexpr):
    """One program makes a call on ``pe``'s word ``turns`` times, one after the other. ``seen`` gets the last result.

    g: the word holds 0. Each address depends on the last value read, so that no two loads overlap.
    """
    last = tl.full([], 0, tl.int64)
    for turn in range(1, turns + 1):
        if KIND == P:
            dev.p(ctx, word, turn, pe)
            dev.quiet(ctx)
        elif KIND == G:
            last = dev.g(ctx, word + last, pe)
        elif KIND == FETCH_ADD:
            last = dev.atomic_fetch_add(ctx, word, 1, pe)
        else:
            last = dev.atomic_compare_swap(ctx, word, turn - 1, turn, pe)
    tl.store(seen, last)


@triton.jit
def word_puts(ctx, row, pe, turns):
    """Each program puts to a word of its own on ``pe``, ``turns`` times, without completion between."""
    for turn in range(1, turns + 1):
        dev.p(ctx, row + tl.program_id(0), turn, pe)


@triton.jit
def tile_adds(ctx, row, pe, turns, COUNT: tl.constexpr):
    """A program adds 1 to COUNT words on ``pe``, ``turns`` times."""
    at = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    for _ in range(turns):
        dev.atomic_add(ctx, row + at, 1, pe)


@triton.jit
def signals(ctx, flag, begun, turns):
    """A signal goes back and forth between PEs 0 and 1; its values go on from what ``begun`` holds."""
    me = dev.my_pe(ctx)
    first = tl.load(begun)
    for turn in range(turns):
        if me == 0:
            dev.signal_set(ctx, flag, first + turn, 1)
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, first + turn)
        else:
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, first + turn)
            dev.signal_set(ctx, flag, first + turn, 0)
