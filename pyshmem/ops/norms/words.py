"""The schedule "words" of all_reduce_rms_norm: words that are their own flags, for few rows."""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch, transport
from pyshmem.device.arch import decoded, jit
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.collectives.packing import both, element_in, shared_by
from pyshmem.ops.float8 import CODES, coded, factor_of
from pyshmem.ops.marked_words import begin_store, begin_wait


@triton.jit
def send_words(
    ctx, slots, epochs, shape, rows, PARTS: tl.constexpr, WIDTH: tl.constexpr, CUT: tl.constexpr, EARLY: tl.constexpr
):
    """push_rows by words that are their own flags, for few rows: a word of 8 bytes has 4 bytes of data and the epoch.

    A row is PARTS times WIDTH lanes of 4 bytes: two elements of 16 bits, or one of 32. A thread has one lane of each part.
    CUT: the segments of a row, of PARTS / CUT parts, 1 for results of 8 bits. A program sends and stores one, and adds all.
    slots: words of 8 bytes, (2, room, PEs, PARTS * WIDTH); ctx.piece is the bytes from one PE's words to the next one's.
    """
    element: tl.constexpr = rows.x.dtype.element_ty
    if EARLY:
        gpu.follow()
    tokens, hidden = decoded(shape.tokens), shape.hidden
    epoch = tl.load(epochs + tl.program_id(0)) + 1
    here = slots.to(tl.int64) + (epoch & 1) * decoded(shape.room) * dev.n_pes(ctx) * ctx.piece
    for item in range(tl.program_id(0), tokens * CUT, tl.num_programs(0)):
        row, first_lane = item // CUT, item % CUT * (PARTS // CUT * WIDTH)
        mine = here + (row * dev.n_pes(ctx) + dev.my_pe(ctx)) * ctx.piece
        source = rows.x + tl.cast(row, tl.int64) * hidden
        send_segment(ctx, mine, epoch, source, hidden, first_lane, PARTS // CUT, WIDTH)
    for item in range(tl.program_id(0), tokens * CUT, tl.num_programs(0)):
        row, segment = item // CUT, item % CUT
        lane = segment * (PARTS // CUT * WIDTH) * shared_by(2, element)
        places = tl.cast(row, tl.int64) * hidden
        own = load_parts(rows.x + places, hidden, PARTS, WIDTH)
        before = load_parts(rows.residual + places, hidden, PARTS, WIDTH)
        gains = load_gains(rows.weight + lane, hidden - lane, element, PARTS // CUT, WIDTH)
        first = here + row * dev.n_pes(ctx) * ctx.piece
        words = await_rows(ctx, first, epoch, own, tl.cdiv(hidden, shared_by(2, element)) - 1, PARTS, WIDTH)
        span = dev.trace_begin(ctx, "row")
        finish_row(ctx, words, before, gains, shape, rows, row, segment, PARTS, WIDTH, CUT)
        dev.trace_end(ctx, span)
    arch.join(ctx)
    tl.store(epochs + tl.program_id(0), epoch)


@jit
def load_parts(row, hidden, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the lanes of a row, as int32, a block for each part."""
    shared: tl.constexpr = shared_by(2, row.dtype.element_ty)
    lanes = row.to(tl.pointer_type(tl.int32)) + tl.arange(0, WIDTH)
    found = ()
    for part in tl.static_range(PARTS):
        inside = (part * WIDTH + tl.arange(0, WIDTH)) * shared < hidden
        found = found + (tl.load(lanes + part * WIDTH, mask=inside, other=0),)
    return found


@jit
def load_gains(weight, hidden, element: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the weights: as lanes where they have the elements' type, else those of each lane's first and last element."""
    found = ()
    if weight.dtype.element_ty == element:
        lanes = load_parts(weight, hidden, PARTS, WIDTH)
        for part in tl.static_range(PARTS):
            found = found + ((lanes[part],),)
    else:
        for part in tl.static_range(PARTS):
            places = (part * WIDTH + tl.arange(0, WIDTH)) * shared_by(2, element)
            one = tl.load(weight + places, mask=places < hidden, other=0.0)
            found = found + ((one, tl.load(weight + places + 1, mask=places < hidden, other=0.0)),)
    return found


@jit
def send_segment(ctx, mine, epoch, row, hidden, first_lane, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Send parts of a row to ``mine``, the place of this PE's words, on all PEs, the next one first; of two on the other."""
    shared: tl.constexpr = shared_by(2, row.dtype.element_ty)
    first = first_lane * shared
    words = load_parts(row + first, hidden - first, PARTS, WIDTH)  # all before the first store, which no load may pass
    pe = dev.my_pe(ctx)
    for step in tl.static_range(1 if ctx.members == 2 else ctx.members):
        pe = tl.where(pe + 1 == dev.n_pes(ctx), 0, pe + 1)
        to = tl.where(dev.n_pes(ctx) > step, pe, -1)
        event = begin_store(ctx, mine + first_lane * 8, epoch, to, words[0], tl.where(to < 0, 0, PARTS))
        there = transport.piece_on(ctx, mine, pe)
        for part in tl.static_range(PARTS):
            lanes = first_lane + part * WIDTH + tl.arange(0, WIDTH)
            used = (lanes * shared < hidden) & (dev.n_pes(ctx) > step)
            transport.store_words(ctx, there, lanes, 0, words[part], epoch, used)
        arch.end_event(ctx, event)


@jit
def await_rows(ctx, first, epoch, own, most, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Wait for the words of all PEs, from ``first`` on, and return them: of each part those of PE 0, 1, ...

    own: this PE's, for which nobody waits where there are two PEs.  most: the last place that is sent.
    """
    lane, me = tl.arange(0, WIDTH), dev.my_pe(ctx)
    if ctx.members == 2:
        theirs = first + (1 - me) * ctx.piece
        event = begin_wait(ctx, theirs, ctx.piece, epoch)
        others = arch.await_parts(ctx, "all_reduce", theirs, lane, most, epoch, 1, PARTS)
        arch.end_event(ctx, event)
        found = ()
        for part in tl.static_range(PARTS):
            one, two = own[part], others[part][0]
            found = found + ((tl.where(me == 0, one, two), tl.where(me == 0, two, one)),)
        return found
    else:
        event = begin_wait(ctx, first, dev.n_pes(ctx) * ctx.piece, epoch)
        found = arch.await_parts(ctx, "all_reduce", first, lane, most, epoch, ctx.members, PARTS)
        arch.end_event(ctx, event)
        return found


@jit
def finish_row(
    ctx, words, residual, gains, shape, rows, row, segment, PARTS: tl.constexpr, WIDTH: tl.constexpr, CUT: tl.constexpr
):
    """Add the words of all PEs and the residual, normalise, and store a segment of the row."""
    element: tl.constexpr = rows.sums.dtype.element_ty
    shared: tl.constexpr = shared_by(2, element)
    hidden, places = shape.hidden, tl.cast(row, tl.int64) * shape.hidden
    lane = tl.arange(0, WIDTH)
    kept, square = (), tl.zeros([WIDTH], tl.float32)
    for part in tl.static_range(PARTS):
        inside = (part * WIDTH + lane) * shared < hidden
        low = summed(ctx, words[part], residual[part], inside, element, 0)
        high = summed(ctx, words[part], residual[part], inside, element, shared - 1)
        kept = kept + ((low, high),)
        square += low * low
        if shared == 2:
            square += high * high
    scale = tl.rsqrt(tl.sum(square, axis=0) / hidden + shape.eps)
    if rows.out.dtype.element_ty == CODES:
        largest = tl.zeros([WIDTH], tl.float32)
        for part in tl.static_range(PARTS):
            low, high = scaled_lanes(kept[part], gains[part], scale, element)
            largest = tl.maximum(largest, tl.maximum(tl.abs(low), tl.abs(high)))
        factor = factor_of(tl.max(largest, axis=0))
        tl.store(rows.scales + row, factor)
        scale = scale / factor
    for part in tl.static_range(PARTS // CUT):
        lanes = (segment * (PARTS // CUT) + part) * WIDTH + lane
        inside = lanes * shared < hidden
        low, high = kept[part]
        for other in tl.static_range(1, CUT):
            one, two = kept[other * (PARTS // CUT) + part]
            low, high = tl.where(segment == other, one, low), tl.where(segment == other, two, high)
        store_lanes(rows.sums + places, lanes, low, high, inside, shared)
        low, high = scaled_lanes((low, high), gains[part], scale, element)
        store_lanes(rows.out + places, lanes, low, high, inside, shared)


@jit
def scaled_lanes(kept, gains, scale, element: tl.constexpr):
    """Return the first and the last element of each lane, times ``scale`` and their weights."""
    low, high = kept
    first_gain, last_gain = gains_of(gains, element)
    return low * scale * first_gain, high * scale * last_gain


@jit
def summed(ctx, words, residual, inside, element: tl.constexpr, place: tl.constexpr):
    """Return the sum of one element of the lanes of all PEs, and of the residual's lanes; zeros outside."""
    total = element_in(words[0], element, place)
    for member in tl.static_range(1, ctx.members):
        total = tl.where(dev.n_pes(ctx) > member, total + element_in(words[member], element, place), total)
    return tl.where(inside, arch.rounded(total, element).to(tl.float32) + element_in(residual, element, place), 0.0)


@jit
def gains_of(gains, element: tl.constexpr):
    """Return the weights of the first and the last element of each lane, in float32."""
    if len(gains) == 1:
        return element_in(gains[0], element, 0), element_in(gains[0], element, shared_by(2, element) - 1)
    else:
        return gains[0], gains[1]


@jit
def store_lanes(row, lanes, low, high, inside, shared: tl.constexpr):
    """Store lanes of ``shared`` elements, one or two."""
    element: tl.constexpr = row.dtype.element_ty
    if element == CODES:
        if shared == 2:
            pair = coded(low).to(tl.int16) | (coded(high).to(tl.int16) << 8)
            tl.store(row.to(tl.pointer_type(tl.int16)) + lanes, pair, mask=inside)
        else:
            tl.store(row + lanes, coded(low), mask=inside)
    elif shared == 2:
        one = arch.rounded(low, element).to(tl.int16, bitcast=True).to(tl.int32)
        two = arch.rounded(high, element).to(tl.int16, bitcast=True).to(tl.int32)
        tl.store(row.to(tl.pointer_type(tl.int32)) + lanes, both(one, two), mask=inside)
    else:
        tl.store(row + lanes, low, mask=inside)
