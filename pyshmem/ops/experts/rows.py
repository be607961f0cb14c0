"""How kernels of experts move rows: out of an array to slots on peers, and from there to the rows of experts.

A row is ``hidden`` elements and, where they are numbers of 8 bits, S scales; S is 0 for others. So the rows of x, of slots
and of results are pairs of pointers, to elements and to scales, of which the second one is not used without scales.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device.arch import jit


@jit
def load_row(source, row, hidden, there, W: tl.constexpr, S: tl.constexpr):
    """Return the elements of a row in a tuple, and its scales behind them if it has some. there: whether it is wanted."""
    lane = tl.arange(0, W)
    elements = source[0] + tl.cast(row, tl.int64) * hidden + lane
    found = (tl.load(elements, mask=(lane < hidden) & there),)
    if S > 0:
        number = tl.arange(0, triton.next_power_of_2(S))
        found = found + (tl.load(source[1] + tl.cast(row, tl.int64) * S + number, mask=(number < S) & there),)
    return found


@jit
def keep_row(rows, row, found, hidden, there, W: tl.constexpr, S: tl.constexpr):
    """Store what load_row has returned as a row here."""
    lane = tl.arange(0, W)
    tl.store(rows[0] + tl.cast(row, tl.int64) * hidden + lane, found[0], mask=(lane < hidden) & there)
    if S > 0:
        number = tl.arange(0, triton.next_power_of_2(S))
        tl.store(rows[1] + tl.cast(row, tl.int64) * S + number, found[1], mask=(number < S) & there)


@jit
def send_row(ctx, rows, row, found, pe, hidden, there, W: tl.constexpr, S: tl.constexpr):
    """keep_row on another PE."""
    lane = tl.arange(0, W)
    dev.store(ctx, rows[0] + tl.cast(row, tl.int64) * hidden + lane, found[0], pe, (lane < hidden) & there)
    if S > 0:
        number = tl.arange(0, triton.next_power_of_2(S))
        dev.store(ctx, rows[1] + tl.cast(row, tl.int64) * S + number, found[1], pe, (number < S) & there)


@jit
def rows_from(rows, first, hidden, S: tl.constexpr):
    """Return the rows from row ``first`` on."""
    return rows[0] + tl.cast(first, tl.int64) * hidden, rows[1] + tl.cast(first, tl.int64) * S


@jit
def tell(ctx, flag, value, end):
    """Set a flag on the PEs from the next one to the one ``end`` - 1 behind: all peers, or this PE too."""
    for i in range(1, end):
        dev.signal_set(ctx, flag, value, (dev.my_pe(ctx) + i) % dev.n_pes(ctx))


@jit
def push_parts(ctx, flags, step, mine, source, indices, tokens, shape, work, FORM: tl.constexpr):
    """Send rows of this program's parts to ``mine``.

    If the program does nothing else, the flag of a part becomes ``step`` + its chunk behind each.
    """
    each, chunk = work.each, work.chunk
    for start in range(0, each, chunk):
        for part in range(tl.program_id(0), work.parts, work.pushers):
            last = tl.minimum(tl.minimum(start + chunk, each) + part * each, tokens)
            parcel = dev.trace_begin(ctx, "parcel")
            push(ctx, mine, source, indices, part * each + start, last, shape, FORM)
            dev.trace_end(ctx, parcel)
            if work.first > 0:
                tell(ctx, flags + part, step + start // chunk, dev.n_pes(ctx))


@jit
def push(ctx, mine, source, indices, begin, end, shape, FORM: tl.constexpr):
    """Send rows of ``source`` to ``mine``, this PE's slots, on each peer that has an expert for them."""
    TOP: tl.constexpr = FORM.TOP
    W: tl.constexpr = FORM.W
    S: tl.constexpr = FORM.S
    AT_ONCE: tl.constexpr = FORM.SENT
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    hidden, local, item = shape.hidden, shape.local, tl.arange(0, FORM.PT)
    for token in range(begin, end, AT_ONCE):
        values = ()
        for j in tl.static_range(AT_ONCE):  # all before the first store, which no load may pass
            values = values + (load_row(source, token + j, hidden, token + j < end, W, S),)
        for j in tl.static_range(AT_ONCE):
            held = (item < TOP) & (token + j < end)
            listed = tl.load(indices + (token + j) * TOP + item, mask=held, other=-1).to(tl.int32)
            for i in range(1, n):
                pe = (me + i) % n
                some = tl.max(((listed >= pe * local) & (listed < pe * local + local)).to(tl.int32), axis=0)
                send_row(ctx, mine, token + j, values[j], pe, hidden, some > 0, W, S)


@jit
def spread(ctx, source, places, rows, begin, end, hidden, FORM: tl.constexpr, AT_ONCE: tl.constexpr):
    """Copy rows of ``source`` to each of their places. AT_ONCE: those that are loaded before the first is stored."""
    TOP: tl.constexpr = FORM.TOP
    W: tl.constexpr = FORM.W
    S: tl.constexpr = FORM.S
    span = dev.trace_begin(ctx, "spread")
    for token in range(begin, end, AT_ONCE):
        values, wanted = (), ()
        for j in tl.static_range(AT_ONCE):
            for k in tl.static_range(TOP):
                wanted = wanted + (tl.load(places + (token + j) * TOP + k, mask=token + j < end, other=-1),)
        for j in tl.static_range(AT_ONCE):
            values = values + (load_row(source, token + j, hidden, wanted[j * TOP] >= 0, W, S),)
        for j in tl.static_range(AT_ONCE):
            for k in tl.static_range(TOP):
                place = wanted[j * TOP + k]
                keep_row(rows, place, values[j], hidden, place >= 0, W, S)
    dev.trace_end(ctx, span)


@jit
def spread_arrivals(
    ctx, flags, pitch, step, slots, operands, begin, end, room, hidden, FORM: tl.constexpr, AT_ONCE: tl.constexpr
):
    """Wait for a chunk of each peer in turn, and spread it."""
    rows = (operands.rows, operands.row_scales)
    for i in range(1, dev.n_pes(ctx)):
        pe = (dev.my_pe(ctx) + i) % dev.n_pes(ctx)
        dev.signal_wait_until(ctx, flags + pe * pitch, dev.CMP_GE, step)
        theirs = rows_from(slots, pe * room, hidden, FORM.S)
        spread(ctx, theirs, operands.places + pe * room * FORM.TOP, rows, begin, end, hidden, FORM, AT_ONCE)


@jit
def weighted_sum(rows, places, factors, hidden, TOP: tl.constexpr, W: tl.constexpr, AT_ONCE: tl.constexpr):
    """Return the sum of a token's rows here in float32. AT_ONCE: rows that are loaded before the first is added."""
    lane, total = tl.arange(0, W), tl.zeros([W], tl.float32)
    for begin in tl.static_range(0, TOP, AT_ONCE):
        found, scales = (), ()
        for j in tl.static_range(AT_ONCE):
            if begin + j < TOP:
                place = tl.load(places + begin + j)
                inside = (lane < hidden) & (place >= 0)
                scales = scales + (tl.where(place >= 0, tl.load(factors + begin + j), 0.0),)
                found = found + (tl.load(rows + tl.cast(place, tl.int64) * hidden + lane, mask=inside, other=0.0),)
        for j in tl.static_range(AT_ONCE):
            if begin + j < TOP:
                total += found[j].to(tl.float32) * scales[j]
    return total
