"""The kernel of attention over sequences that are divided among PEs: blocks of keys are read as they come from peers.

A sequence is cut into segments, SEGMENTS for each PE. The first one of PE p is segment p; the second one is as far from the
end, so that under a causal mask all PEs have the same work. A program makes a tile of queries of one head. It takes the keys
of its own PE first, then those of the next one, and so on, and keeps for each query the largest product, the sum of the
weights and the weighted sum of values: the online softmax of FlashAttention (Dao et al.), over blocks as in Ring Attention
(Liu et al., arXiv 2310.01889).
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.ops import protocol
from pyshmem.ops.attention.decode_kernels import dot, fitted
from pyshmem.ops.attention.heads import head_and_tile
from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.copies import PITCH as FLAGS_PITCH
from pyshmem.ops.shares import share_size, share_start

PITCH = tl.constexpr(FLAGS_PITCH)


class Form(NamedTuple):
    """What the kernel is compiled for. D: elements of a head.  PD: the power of 2 from D on.

    BM: queries of a tile.  BN: keys of a block.  SEGMENTS: of a PE.  WAITS: whether keys may still be on their way.
    PRECISION: that of ``dot``.
    """

    HEADS: int
    KV_HEADS: int
    D: int
    PD: int
    BM: int
    BN: int
    SEGMENTS: int
    CAUSAL: bool
    WAITS: bool
    CHIPLETS: int
    PRECISION: str


@triton.jit(do_not_specialize=["size", "items"])
def attend_blocks(ctx, words, flags, slots, room, size, items, scale, q, out, FORM: tl.constexpr):
    """Make all tiles of this PE's queries. Tiles are numbered head by head, those of each from its last queries on.

    q, out: (sequences, tokens, HEADS, D).  slots: for each PE its keys, (sequences, its tokens, KV_HEADS, D), and, ``room``
    elements behind the first of them, its values.  size: the tokens of a sequence on all PEs.  flags: one for each PE.
    scale: of products, for powers of 2.
    """
    D: tl.constexpr = FORM.D
    BM: tl.constexpr = FORM.BM
    PD: tl.constexpr = FORM.PD
    SEGMENTS: tl.constexpr = FORM.SEGMENTS
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    tokens, early = tokens_of(size, me, n, SEGMENTS)
    tiles = tl.cdiv(early, BM) + tl.cdiv(tokens - early, BM)
    epoch = protocol.enter(ctx, words)
    factor = tl.where(scale == 0, 1.0, tl.abs(scale))  # a positive one is the same for the largest product
    row, lane = tl.arange(0, BM), tl.arange(0, PD)
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        place, tile = head_and_tile(renumbered(item, items, FORM.CHIPLETS), tiles)
        head, sequence = place % FORM.HEADS, place // FORM.HEADS
        first, height, here = tile_of(tile, early, tokens, size, me, n, SEGMENTS, BM)
        start = ((tl.cast(sequence, tl.int64) * tokens + here) * FORM.HEADS + head) * D
        places = row[:, None] * (FORM.HEADS * D) + lane[None, :]
        inside = (row < height)[:, None] & (lane < D)[None, :]
        span = dev.trace_begin(ctx, "tile")
        queries = tl.load(q + start + places, mask=inside, other=0.0)
        queries = tl.where(scale == 0, tl.zeros_like(queries), tl.where(scale < 0, -queries, queries))
        top = tl.full([BM], float("-inf"), tl.float32)
        total, sums = tl.zeros([BM], tl.float32), tl.zeros([BM, PD], tl.float32)
        for i in range(n):
            pe = (me + i) % n
            its, its_early = tokens_of(size, pe, n, SEGMENTS)
            base = slots + tl.cast(pe, tl.int64) * (2 * room)
            base += (tl.cast(sequence, tl.int64) * its * FORM.KV_HEADS + head // (FORM.HEADS // FORM.KV_HEADS)) * D
            if FORM.WAITS:
                if (i > 0) & ((first + height > share_start(size, pe, n * SEGMENTS)) | (not FORM.CAUSAL)):
                    dev.signal_wait_until(ctx, flags + pe * PITCH, dev.CMP_GE, epoch)
            for segment in range(SEGMENTS):
                length = tl.where(segment == 0, its_early, its - its_early)
                before = first - share_start(size, tl.where(segment == 0, pe, 2 * n - 1 - pe), n * SEGMENTS)
                keys = base + tl.cast(segment * its_early, tl.int64) * (FORM.KV_HEADS * D)
                top, total, sums = attended_segment(
                    queries, keys, keys + room, length, before, height, top, total, sums, factor, FORM
                )
        final = arch.rounded(sums / total[:, None], out.dtype.element_ty)
        tl.store(out + start + places, final, mask=inside)
        dev.trace_end(ctx, span)


@jit
def tokens_of(size, pe, n, SEGMENTS: tl.constexpr):
    """Return the tokens of ``pe``, and how many of them are in its segment 0."""
    early = share_size(size, pe, n * SEGMENTS)
    if SEGMENTS == 1:
        return early, early
    else:
        return early + share_size(size, 2 * n - 1 - pe, 2 * n), early


@jit
def tile_of(tile, early, tokens, size, me, n, SEGMENTS: tl.constexpr, BM: tl.constexpr):
    """Return (place in the sequence, rows, place among this PE's tokens) of a tile of queries."""
    tiles = tl.cdiv(early, BM)
    late = tile >= tiles
    inner = tl.where(late, tile - tiles, tile) * BM
    segment = tl.where(late, n * SEGMENTS - 1 - me, me)
    height = tl.minimum(tl.where(late, tokens - early, early) - inner, BM)
    return share_start(size, segment, n * SEGMENTS) + inner, height, tl.where(late, early, 0) + inner


@jit
def attended_segment(queries, keys, values, length, before, height, top, total, sums, factor, FORM: tl.constexpr):
    """Return top, total and sums with a segment of ``length`` tokens: first blocks that all queries see, then the others.

    before: the token of the segment at the place of the first of ``height`` queries; it may be outside.
    """
    seen, whole = length, length
    if FORM.CAUSAL:
        seen, whole = tl.minimum(length, before + height), tl.maximum(tl.minimum(length, before + 1), 0)
    whole = whole // FORM.BN * FORM.BN
    sums_so_far = (top, total, sums)
    sums_so_far = attended_blocks(queries, keys, values, 0, whole, length, before, sums_so_far, factor, False, FORM)
    return attended_blocks(queries, keys, values, whole, seen, length, before, sums_so_far, factor, True, FORM)


@jit
def attended_blocks(
    queries, keys, values, first, last, length, before, sums_so_far, factor, MASKED: tl.constexpr, FORM: tl.constexpr
):
    """Return top, total and sums, which begin as ``sums_so_far``, with the tokens from first to last - 1 of a segment.

    MASKED: whether some are not seen.
    """
    top, total, sums = sums_so_far
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    PRECISION: tl.constexpr = FORM.PRECISION  # Triton 3.6 passes no text on that is not a constant by itself
    row, token, lane = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, FORM.PD)
    places = token[:, None] * (FORM.KV_HEADS * FORM.D) + lane[None, :]
    for start in range(first, last, BN):
        away = tl.cast(start, tl.int64) * (FORM.KV_HEADS * FORM.D)
        block = loaded(keys + away + places, start + token, length, lane, FORM.D, FORM.PD, MASKED)
        products = dot(queries, tl.trans(block), tl.zeros([BM, BN], tl.float32), PRECISION)
        if MASKED:
            sees = (start + token < length)[None, :]
            if FORM.CAUSAL:
                sees = sees & (start + token[None, :] <= before + row[:, None])
            products = tl.where(sees, products, float("-inf"))
        peak = tl.maximum(top, tl.max(products, axis=1) * factor)
        weights, faded = tl.exp2(products * factor - peak[:, None]), tl.exp2(top - peak)
        block = loaded(values + away + places, start + token, length, lane, FORM.D, FORM.PD, MASKED)
        sums = dot(fitted(weights, block, PRECISION), block, sums * faded[:, None], PRECISION)
        total = total * faded + tl.sum(weights, axis=1)
        top = peak
    return top, total, sums


@jit
def loaded(pointers, token, length, lane, D: tl.constexpr, PD: tl.constexpr, MASKED: tl.constexpr):
    """Return a block of keys or values, with zeros outside."""
    if MASKED:
        return tl.load(pointers, mask=(token < length)[:, None] & (lane < D)[None, :], other=0.0)
    elif PD != D:
        return tl.load(pointers, mask=(lane < D)[None, :], other=0.0)
    else:
        return tl.load(pointers)
