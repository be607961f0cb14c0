"""Kernels of attention for one query of each sequence, over keys and values that are divided among programs and PEs.

A group is a sequence and a head of keys with the heads of queries that share it. A part of a group's result is what a
program or a PE finds of its own tokens: ``values``, as if there were no others, and ``logs``, the binary logarithm of the
sum of the weights, -inf without tokens. Both are float32. Parts combine as in FlashDecoding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import decoded, jit
from pyshmem.device.arch.targets import is_nvidia


class Exchange(NamedTuple):
    """The memory by which PEs exchange parts. flags: (groups, PEs).  epochs, tallies: one for each group.

    slots, slot_logs: parts, (groups, 2, PEs), of each parity of the group's epoch. A group's are at the same places in calls
    of any number of groups.
    """

    flags: Any
    slots: Any
    slot_logs: Any
    epochs: Any
    tallies: Any


class Parts(NamedTuple):
    """The parts of splits: their values, (groups, splits, Q, D), and logs, (groups, splits, Q)."""

    means: Any
    logs: Any


class Shape(NamedTuple):
    """The numbers of a call, encoded. tokens: this PE's room for tokens of a sequence."""

    tokens: Any
    splits: Any
    groups: Any


class Form(NamedTuple):
    """What a kernel is compiled for. HEADS: of keys.  Q: heads of queries of a group.  D: elements of a head.

    BQ, PQ: powers of 2 from Q on, for tl.dot and for other blocks.  PD: that for D.  BT: tokens of a block.
    CHUNK: parts that are combined at once.  PAGE: None, or the tokens of a page.  PRECISION: that of ``dot``.
    FUSED: the last program of a group combines it over splits and PEs.
    """

    HEADS: int
    Q: int
    D: int
    BQ: int
    BT: int
    PQ: int
    PD: int
    CHUNK: int
    PAGE: int | None
    PRECISION: str
    FUSED: bool


@triton.jit
def attend(ctx, exchange, parts, scale, shape, q, k, v, lengths, table, out, FORM: tl.constexpr):
    """Make the part of each group and split and, if FORM.FUSED, the groups of them.

    scale: of the products, for powers of 2.  q, out: (groups, Q, D).  lengths: the tokens of each sequence.
    k, v: (sequences, tokens, HEADS, D), or (pages, PAGE, HEADS, D).  table: the pages of each sequence, if there are pages.
    """
    Q: tl.constexpr = FORM.Q
    D: tl.constexpr = FORM.D
    FUSED: tl.constexpr = FORM.FUSED
    head, lane = tl.arange(0, FORM.BQ), tl.arange(0, FORM.PD)
    tokens, splits, groups = decoded(shape.tokens), decoded(shape.splits), decoded(shape.groups)
    inside = (head < Q)[:, None] & (lane < D)[None, :]
    places = head[:, None] * D + lane[None, :]
    for item in range(tl.program_id(0), groups * splits, tl.num_programs(0)):
        group, split = item // splits, item % splits
        queries = tl.load(q + tl.cast(group, tl.int64) * (Q * D) + places, mask=inside, other=0.0)
        sequence = group // FORM.HEADS
        length = tl.minimum(tl.maximum(tl.load(lengths + sequence), 0), tokens)
        each = tl.cdiv(tl.cdiv(length, splits), FORM.BT) * FORM.BT
        first = split * each
        start, pages = tl.cast(group % FORM.HEADS * D, tl.int64), table
        if FORM.PAGE is None:
            start += tl.cast(sequence, tl.int64) * tokens * (FORM.HEADS * D)
        else:
            pages += sequence * (tokens // FORM.PAGE)
        last = tl.minimum(first + each, length)
        span = dev.trace_begin(ctx, "tile")
        value, log = attended(queries, k + start, v + start, pages, first, last, scale, FORM)
        dev.trace_end(ctx, span)
        if FUSED and ctx.members == 1:
            if splits == 1:  # nothing is to be added
                store_result(out + tl.cast(group, tl.int64) * (Q * D) + places, value, inside)
        if not (FUSED and ctx.members == 1) or splits > 1:
            tl.store(parts.means + tl.cast(item, tl.int64) * (Q * D) + places, value, mask=inside)
            tl.store(parts.logs + item * Q + head, log, mask=head < Q)
            if FUSED:
                if is_last(ctx, exchange.tallies + group, splits):
                    start = tl.cast(group, tl.int64) * splits * Q
                    values, logs = parts.means + start * D, parts.logs + start
                    merging = dev.trace_begin(ctx, "merge")
                    mine, its = merged(values, logs, splits, Q * D, Q, FORM, FORM.CHUNK)
                    dev.trace_end(ctx, merging)
                    exchanged(ctx, exchange, mine, its, group, out, FORM)


@jit
def is_last(ctx, tally, count):
    """Count this program, which has stored its part. Return whether ``count`` have; their parts can then be loaded."""
    if is_nvidia(ctx.where):  # all of them are on this GPU: a fence for other PEs would wait for much longer
        arch.join(ctx)
        before = dev.atomic_fetch_add(ctx, tally, 1, dev.my_pe(ctx), None, "acq_rel", "gpu")
    else:
        dev.fence(ctx)
        before = dev.atomic_fetch_add(ctx, tally, 1, dev.my_pe(ctx))
    last = before + 1 == count
    if last:
        tl.store(tally, 0)
    return last


@jit
def attended(queries, k, v, pages, first, last, scale, FORM: tl.constexpr):
    """Return the part of the tokens from first to last - 1."""
    D: tl.constexpr = FORM.D
    BQ: tl.constexpr = FORM.BQ
    BT: tl.constexpr = FORM.BT
    PD: tl.constexpr = FORM.PD
    PAGE: tl.constexpr = FORM.PAGE
    PRECISION: tl.constexpr = FORM.PRECISION  # Triton 3.6 passes no text on that is not a constant by itself
    token, lane = tl.arange(0, BT), tl.arange(0, PD)
    top = tl.full([BQ], float("-inf"), tl.float32)
    total, sums = tl.zeros([BQ], tl.float32), tl.zeros([BQ, PD], tl.float32)
    for start in range(first, last, BT):
        places = rows_of(pages, start, token, last, BT, PAGE)[:, None] * (FORM.HEADS * D) + lane[None, :]
        inside = (start + token < last)[:, None] & (lane < D)[None, :]
        keys = tl.load(k + places, mask=inside, other=0.0)
        products = dot(queries, tl.trans(keys), tl.zeros([BQ, BT], tl.float32), PRECISION) * scale
        products = tl.where((start + token < last)[None, :], products, float("-inf"))
        peak = tl.maximum(top, tl.max(products, axis=1))
        weights, before = tl.exp2(products - peak[:, None]), tl.exp2(top - peak)
        rows = tl.load(v + places, mask=inside, other=0.0)
        sums = dot(fitted(weights, rows, PRECISION), rows, sums * before[:, None], PRECISION)
        total = total * before + tl.sum(weights, axis=1)
        top = peak
    return quotient(top, total, sums)


@jit
def quotient(top, total, sums):
    """Return the values and logs of a part, by its ``sums`` of weighted values and the ``total`` of its weights."""
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
def merged(values, logs, count, pitch, logs_pitch, FORM: tl.constexpr, CHUNK: tl.constexpr):
    """Return the part of all tokens of ``count`` parts, in their order. CHUNK: how many are loaded at once.

    pitch, logs_pitch: the elements from a part to the next one.
    """
    Q: tl.constexpr = FORM.Q
    D: tl.constexpr = FORM.D
    PQ: tl.constexpr = FORM.PQ
    PD: tl.constexpr = FORM.PD
    head, lane = tl.arange(0, PQ), tl.arange(0, PD)
    top = tl.full([PQ], float("-inf"), tl.float32)
    total, sums = tl.zeros([PQ], tl.float32), tl.zeros([PQ, PD], tl.float32)
    for first in range(0, count, CHUNK):
        part = first + tl.arange(0, CHUNK)
        some = (part < count)[:, None] & (head < Q)[None, :]
        log = tl.load(logs + part[:, None] * logs_pitch + head[None, :], mask=some, other=float("-inf"))
        places = (part[:, None] * tl.cast(pitch, tl.int64) + head[None, :] * D)[:, :, None] + lane[None, None, :]
        value = tl.load(values + places, mask=some[:, :, None] & (lane < D)[None, None, :], other=0.0)
        peak = tl.maximum(top, tl.max(log, axis=0))
        shift = tl.where(peak == float("-inf"), 0.0, peak)  # without tokens
        weights, before = tl.exp2(log - shift[None, :]), tl.exp2(top - shift)
        sums = sums * before[:, None] + tl.sum(value * weights[:, :, None], axis=0)
        total = total * before + tl.sum(weights, axis=0)
        top = peak
    return quotient(top, total, sums)


@jit
def exchanged(ctx, exchange, value, log, group, out, FORM: tl.constexpr):
    """Push a group's part to all PEs, a flag behind it, and combine those of all PEs into ``out``.

    No PE ends a call with this group before all have begun it, so its slots of the call before the last one are free,
    whichever other groups these calls have.
    """
    Q: tl.constexpr = FORM.Q
    D: tl.constexpr = FORM.D
    head, lane = tl.arange(0, FORM.PQ), tl.arange(0, FORM.PD)
    inside = (head < Q)[:, None] & (lane < D)[None, :]
    places = head[:, None] * D + lane[None, :]
    if ctx.members == 1:
        store_result(out + tl.cast(group, tl.int64) * (Q * D) + places, value, inside)
    else:
        combine_over_pes(ctx, exchange, value, log, group, out, head, inside, places, FORM)


@jit
def store_result(places, value, inside):
    """Store the values of a group, in the type of the result."""
    tl.store(places, arch.rounded(value, places.dtype.element_ty), mask=inside)


@jit
def combine_over_pes(ctx, exchange, value, log, group, out, head, inside, places, FORM: tl.constexpr):
    """As exchanged, of several PEs. head, inside, places: of the elements of a group."""
    Q: tl.constexpr = FORM.Q
    D: tl.constexpr = FORM.D
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    epoch, flags = tl.load(exchange.epochs + group) + 1, exchange.flags + group * n
    here = (group * 2 + (epoch & 1)) * n
    mine = here + me
    parcel = dev.trace_begin(ctx, "parcel")
    for i in range(1, n + 1):
        dev.store(ctx, exchange.slots + mine * (Q * D) + places, value, (me + i) % n, inside)
        dev.store(ctx, exchange.slot_logs + mine * Q + head, log, (me + i) % n, head < Q)
    dev.trace_end(ctx, parcel)
    for i in range(1, n + 1):
        dev.signal_set(ctx, flags + me, epoch, (me + i) % n)
    meet = dev.trace_begin(ctx, "meet")
    for pe in range(n):
        dev.signal_wait_until(ctx, flags + pe, dev.CMP_GE, epoch)
    dev.trace_end(ctx, meet)
    values, logs = exchange.slots + here * (Q * D), exchange.slot_logs + here * Q
    span = dev.trace_begin(ctx, "merge")
    value, log = merged(values, logs, n, Q * D, Q, FORM, ctx.members)
    store_result(out + tl.cast(group, tl.int64) * (Q * D) + places, value, inside)
    dev.trace_end(ctx, span)
    arch.join(ctx)  # all threads have loaded the epoch
    tl.store(exchange.epochs + group, epoch)


@triton.jit
def merge_splits(parts, sums, shape, FORM: tl.constexpr):
    """Combine the parts of each group of this PE. sums: values of all groups, (groups, Q, D), and their logs behind them."""
    Q: tl.constexpr = FORM.Q
    D: tl.constexpr = FORM.D
    group, groups, splits = tl.cast(tl.program_id(0), tl.int64), decoded(shape.groups), decoded(shape.splits)
    head, lane = tl.arange(0, FORM.PQ), tl.arange(0, FORM.PD)
    if group < groups:
        first = group * splits * Q
        value, log = merged(parts.means + first * D, parts.logs + first, splits, Q * D, Q, FORM, FORM.CHUNK)
        places = group * (Q * D) + head[:, None] * D + lane[None, :]
        tl.store(sums + places, value, mask=(head < Q)[:, None] & (lane < D)[None, :])
        tl.store(sums + groups * (Q * D) + group * Q + head, log, mask=head < Q)


@triton.jit
def merge_pes(every, n, shape, out, FORM: tl.constexpr):
    """Combine the sums of ``n`` PEs, as merge_splits has stored them, of each group into ``out``."""
    Q: tl.constexpr = FORM.Q
    D: tl.constexpr = FORM.D
    group, groups = tl.cast(tl.program_id(0), tl.int64), decoded(shape.groups)
    head, lane = tl.arange(0, FORM.PQ), tl.arange(0, FORM.PD)
    if group < groups:
        pitch, logs = groups * (Q * D + Q), every + groups * (Q * D) + group * Q
        value, _ = merged(every + group * (Q * D), logs, n, pitch, pitch, FORM, FORM.CHUNK)
        places = group * (Q * D) + head[:, None] * D + lane[None, :]
        store_result(out + places, value, (head < Q)[:, None] & (lane < D)[None, :])
