"""Kernels of attention for one query of each sequence, over keys and values that are divided among programs and PEs.

A group is a sequence and a head of keys with the heads of queries that share it. A part of a group's result is what a
program or a PE finds of its own tokens: ``values``, as if there were no others, and ``logs``, the binary logarithm of the
sum of the weights, -inf without tokens. Both are float32. Parts combine as in FlashDecoding.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import jit


@triton.jit
def attend(
    ctx, flags, slots, slot_logs, turns, tallies, values, logs, tokens, splits, groups, scale, q, k, v, lengths, table, out,
    HEADS: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, BQ: tl.constexpr, BT: tl.constexpr, PQ: tl.constexpr,
    PD: tl.constexpr, CHUNK: tl.constexpr, PAGE: tl.constexpr, PRECISION: tl.constexpr, FUSED: tl.constexpr,
):  # fmt: skip
    """Make the part of each group and split. If FUSED, the last program of a group combines it over splits and PEs.

    q, out: (groups, Q, D).  k, v: (sequences, tokens, HEADS, D).  lengths: the tokens of each sequence.
    PAGE: None, or the tokens of a page: k, v are (pages, PAGE, HEADS, D), and table has the pages of each sequence.
    values, logs: (groups, splits, Q, D) and (groups, splits, Q), parts.  tallies: a count of programs for each group.
    BQ, PQ: powers of 2 from Q on, for tl.dot and for other blocks.  PD: that for D.  BT: tokens of a block.
    """
    head, lane = tl.arange(0, BQ), tl.arange(0, PD)
    inside = (head < Q)[:, None] & (lane < D)[None, :]
    places = head[:, None] * D + lane[None, :]
    for item in range(tl.program_id(0), groups * splits, tl.num_programs(0)):
        group, split = item // splits, item % splits
        queries = tl.load(q + tl.cast(group, tl.int64) * (Q * D) + places, mask=inside, other=0.0)
        length = tl.minimum(tl.maximum(tl.load(lengths + group // HEADS), 0), tokens)
        each = tl.cdiv(tl.cdiv(length, splits), BT) * BT
        first = split * each
        start, pages = tl.cast(group % HEADS * D, tl.int64), table
        if PAGE is None:
            start += tl.cast(group // HEADS, tl.int64) * tokens * (HEADS * D)
        else:
            pages += group // HEADS * (tokens // PAGE)
        value, log = attended(
            queries, k + start, v + start, pages, first, tl.minimum(first + each, length), scale,
            HEADS, D, BQ, BT, PD, PAGE, PRECISION,
        )  # fmt: skip
        tl.store(values + tl.cast(item, tl.int64) * (Q * D) + places, value, mask=inside)
        tl.store(logs + item * Q + head, log, mask=head < Q)
        if FUSED:
            dev.fence(ctx)
            before = dev.atomic_fetch_add(ctx, tallies + group, 1, dev.my_pe(ctx))
            if before + 1 == splits:
                tl.store(tallies + group, 0)
                start = tl.cast(group, tl.int64) * splits * Q
                mine, its = merged(values + start * D, logs + start, splits, Q * D, Q, Q, D, PQ, PD, CHUNK)
                exchanged(ctx, flags, slots, slot_logs, turns, mine, its, group, groups, out, Q, D, PQ, PD)


@jit
def attended(
    queries, k, v, pages, first, last, scale, HEADS: tl.constexpr, D: tl.constexpr, BQ: tl.constexpr, BT: tl.constexpr,
    PD: tl.constexpr, PAGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the part of the tokens from first to last - 1.  scale: of the products, for powers of 2."""
    token, lane = tl.arange(0, BT), tl.arange(0, PD)
    top = tl.full([BQ], float("-inf"), tl.float32)
    total, sums = tl.zeros([BQ], tl.float32), tl.zeros([BQ, PD], tl.float32)
    for start in range(first, last, BT):
        places = rows_of(pages, start, token, last, BT, PAGE)[:, None] * (HEADS * D) + lane[None, :]
        inside = (start + token < last)[:, None] & (lane < D)[None, :]
        keys = tl.load(k + places, mask=inside, other=0.0)
        found = dot(queries, tl.trans(keys), tl.zeros([BQ, BT], tl.float32), PRECISION) * scale
        found = tl.where((start + token < last)[None, :], found, float("-inf"))
        peak = tl.maximum(top, tl.max(found, axis=1))
        weights, before = tl.exp2(found - peak[:, None]), tl.exp2(top - peak)
        rows = tl.load(v + places, mask=inside, other=0.0)
        sums = dot(fitted(weights, rows, PRECISION), rows, sums * before[:, None], PRECISION)
        total = total * before + tl.sum(weights, axis=1)
        top = peak
    some = total > 0
    log = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    return sums / tl.where(some, total, 1.0)[:, None], log


@jit
def rows_of(pages, start, token, last, BT: tl.constexpr, PAGE: tl.constexpr):
    """Return the rows of k and v that have the tokens from ``start``, a multiple of BT, on. token: 0 to BT - 1."""
    if PAGE is None:
        return tl.cast(start, tl.int64) + token
    elif PAGE % BT == 0:
        return tl.cast(tl.load(pages + start // PAGE), tl.int64) * PAGE + (start % PAGE + token)
    else:
        page = tl.load(pages + (start + token) // PAGE, mask=start + token < last, other=0)
        return tl.cast(page, tl.int64) * PAGE + (start + token) % PAGE


@jit
def dot(left, right, sums, PRECISION: tl.constexpr):
    """Return sums + left @ right. PRECISION: tl.dot's, or "widened": the interpreter multiplies no bfloat16."""
    if PRECISION == "widened":
        return tl.dot(left.to(tl.float32), right.to(tl.float32), sums, input_precision="ieee")
    else:
        return tl.dot(left, right, sums, input_precision=PRECISION)


@jit
def fitted(weights, rows, PRECISION: tl.constexpr):
    """Return the weights in the type of the rows that they multiply."""
    if PRECISION == "widened":
        return weights
    else:
        return weights.to(rows.dtype)


@jit
def merged(
    values, logs, count, pitch, logs_pitch, Q: tl.constexpr, D: tl.constexpr, PQ: tl.constexpr, PD: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Return the part of all tokens of ``count`` parts, in their order. CHUNK: how many are loaded at once.

    pitch, logs_pitch: the elements from a part to the next one.
    """
    head, lane = tl.arange(0, PQ), tl.arange(0, PD)
    top = tl.full([PQ], float("-inf"), tl.float32)
    total, sums = tl.zeros([PQ], tl.float32), tl.zeros([PQ, PD], tl.float32)
    for first in range(0, count, CHUNK):
        part = first + tl.arange(0, CHUNK)
        some = (part < count)[:, None] & (head < Q)[None, :]
        log = tl.load(logs + part[:, None] * logs_pitch + head[None, :], mask=some, other=float("-inf"))
        places = (part[:, None] * tl.cast(pitch, tl.int64) + head[None, :] * D)[:, :, None] + lane[None, None, :]
        found = tl.load(values + places, mask=some[:, :, None] & (lane < D)[None, None, :], other=0.0)
        peak = tl.maximum(top, tl.max(log, axis=0))
        shift = tl.where(peak == float("-inf"), 0.0, peak)  # without tokens
        weights, before = tl.exp2(log - shift[None, :]), tl.exp2(top - shift)
        sums = sums * before[:, None] + tl.sum(found * weights[:, :, None], axis=0)
        total = total * before + tl.sum(weights, axis=0)
        top = peak
    some = total > 0
    log = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    return sums / tl.where(some, total, 1.0)[:, None], log


@jit
def exchanged(
    ctx, flags, slots, slot_logs, turns, value, log, group, groups, out,
    Q: tl.constexpr, D: tl.constexpr, PQ: tl.constexpr, PD: tl.constexpr,
):  # fmt: skip
    """Push a group's part to all PEs, a flag behind it, and combine those of all PEs into ``out``.

    slots, slot_logs: parts, (2, PEs, groups), for even and odd turns of the group.  flags: (PEs, groups).
    No PE ends a turn before all have begun it, so the slots of the turn before the last one are free.
    """
    head, lane = tl.arange(0, PQ), tl.arange(0, PD)
    inside = (head < Q)[:, None] & (lane < D)[None, :]
    places = head[:, None] * D + lane[None, :]
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    turn = tl.load(turns + group) + 1
    here = (turn & 1) * n * groups
    mine = here + me * groups + group
    for i in range(1, n + 1):
        dev.store(ctx, slots + mine * (Q * D) + places, value, (me + i) % n, inside)
        dev.store(ctx, slot_logs + mine * Q + head, log, (me + i) % n, head < Q)
    for i in range(1, n + 1):
        dev.signal_set(ctx, flags + me * groups + group, turn, (me + i) % n)
    for pe in range(n):
        dev.signal_wait_until(ctx, flags + pe * groups + group, dev.CMP_GE, turn)
    first = (here + group) * Q
    value, log = merged(
        slots + first * D, slot_logs + first, n, groups * (Q * D), groups * Q, Q, D, PQ, PD, ctx.members
    )
    final = arch.rounded(value, out.dtype.element_ty)
    tl.store(out + tl.cast(group, tl.int64) * (Q * D) + places, final, mask=inside)
    arch.join(ctx)  # all threads have loaded the turn
    tl.store(turns + group, turn)


@triton.jit
def merge_parts(
    count, pitch, logs_pitch, step, logs_step, values, logs, out, out_logs,
    Q: tl.constexpr, D: tl.constexpr, PQ: tl.constexpr, PD: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Combine the parts of a group. step, logs_step: the elements from a group to the next one.

    out, out_logs: (groups, Q, D) and (groups, Q).
    """
    head, lane = tl.arange(0, PQ), tl.arange(0, PD)
    group = tl.cast(tl.program_id(0), tl.int64)
    value, log = merged(values + group * step, logs + group * logs_step, count, pitch, logs_pitch, Q, D, PQ, PD, CHUNK)
    places = group * (Q * D) + head[:, None] * D + lane[None, :]
    final = arch.rounded(value, out.dtype.element_ty)
    tl.store(out + places, final, mask=(head < Q)[:, None] & (lane < D)[None, :])
    tl.store(out_logs + group * Q + head, log, mask=head < Q)
