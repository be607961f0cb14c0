"""Kernels that sum rows over all PEs, add the residual and normalise: each program makes whole rows.

Every kernel adds the rows in the order of PEs in float32 and rounds the sum to their type, as an all-reduce does. Turns are
counted in device memory, so that CUDA graphs replay the kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.collectives.packing import both, element_in, shared_by
from pyshmem.ops import rounds
from pyshmem.ops.shares import share_size, share_start

AT_ONCE = tl.constexpr(4)  # PEs whose rows are loaded at once


@jit
def normalised(total, residual, weight, hidden, eps, ELEMENT: tl.constexpr):
    """Return a row's new residual and its normalised form. total: the sum in float32, with zeros outside the row."""
    row = arch.rounded(total, ELEMENT).to(tl.float32) + residual.to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, axis=0) / hidden + eps)
    return arch.rounded(row, ELEMENT), arch.rounded(row * scale * weight.to(tl.float32), ELEMENT)


@triton.jit
def normalise_rows(tokens, hidden, eps, total, residual, weight, out, sums, BLOCK: tl.constexpr):
    """Normalise rows that are summed already. sums: the new residual."""
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    scales = tl.load(weight + lane, mask=inside, other=0.0)
    for row in range(tl.program_id(0), tokens, tl.num_programs(0)):
        places = tl.cast(row, tl.int64) * hidden + lane
        found = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(residual + places, mask=inside, other=0.0)
        kept, scaled = normalised(found, before, scales, hidden, eps, out.dtype.element_ty)
        tl.store(sums + places, kept, mask=inside)
        tl.store(out + places, scaled, mask=inside)


@triton.jit
def push_rows(
    ctx, flags, slots, turns, tokens, hidden, eps, x, residual, weight, out, sums,
    BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Push this PE's rows into its slots on all PEs, a flag behind each on peers, and make all rows as they arrive.

    slots: (2, PEs, tokens, hidden), for even and odd turns.  flags: (PEs, tokens).  turns: a count for each program.
    No PE ends a turn before all PEs have begun it, so the slots of the turn before the last one are free.
    """
    if EARLY:
        gpu.follow()
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    turn = tl.load(turns + tl.program_id(0)) + 1
    here = slots + (turn & 1) * n * tokens * hidden
    for row in range(tl.program_id(0), tokens, tl.num_programs(0)):
        values = tl.load(x + tl.cast(row, tl.int64) * hidden + lane, mask=inside)
        there = here + tl.cast(me * tokens + row, tl.int64) * hidden + lane
        for i in range(1, n + 1):
            dev.store(ctx, there, values, (me + i) % n, inside)
        for i in range(1, n):
            dev.signal_set(ctx, flags + me * tokens + row, turn, (me + i) % n)
    arch.join(ctx)  # this PE's own rows
    scales = tl.load(weight + lane, mask=inside, other=0.0)
    for row in range(tl.program_id(0), tokens, tl.num_programs(0)):
        places = tl.cast(row, tl.int64) * hidden + lane
        before = tl.load(residual + places, mask=inside, other=0.0)
        for i in range(1, n):
            dev.signal_wait_until(ctx, flags + (me + i) % n * tokens + row, dev.CMP_GE, turn)
        total = row_of_slots(ctx, here + tl.cast(row, tl.int64) * hidden + lane, tokens, hidden, inside)
        kept, scaled = normalised(total, before, scales, hidden, eps, out.dtype.element_ty)
        tl.store(sums + places, kept, mask=inside)
        tl.store(out + places, scaled, mask=inside)
    arch.join(ctx)  # all threads have loaded the turn
    tl.store(turns + tl.program_id(0), turn)


@jit
def row_of_slots(ctx, places, tokens, hidden, inside):
    """Return the sum of a row of all PEs here, in their order. In a small team all loads are in flight at once."""
    n = dev.n_pes(ctx)
    pitch = tl.cast(tokens, tl.int64) * hidden
    total = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    if ctx.members <= AT_ONCE:
        for pe in tl.static_range(1, ctx.members):
            value = tl.load(places + tl.minimum(n - 1, pe) * pitch, mask=inside, other=0.0).to(tl.float32)
            total = tl.where(n > pe, total + value, total)
    else:
        for pe in range(1, n):
            total += tl.load(places + pe * pitch, mask=inside, other=0.0).to(tl.float32)
    return total


@triton.jit
def pull_rows(
    ctx, words, tokens, hidden, eps, x, residual, weight, out, sums,
    BLOCK: tl.constexpr, EARLY: tl.constexpr, SHARED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Make rows of the symmetric x of all PEs: all rows for this PE or, if SHARED, this PE's share of them for all PEs.

    words: those of rounds.  out, sums: symmetric if SHARED.  STAGES: 2 if a row is loaded while the one before is made.
    """
    if EARLY:
        gpu.follow()
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    number = rounds.enter(ctx, words)
    if tl.program_id(0) == 0:
        rounds.arrive(ctx, words, number)
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    scales = tl.load(weight + lane, mask=inside, other=0.0)
    first, count = share_start(tokens, me, n), share_size(tokens, me, n)
    if not SHARED:
        first, count = first * 0, count * 0 + tokens
    rounds.await_arrivals(ctx, words, number)
    for row in tl.range(first + tl.program_id(0), first + count, tl.num_programs(0), num_stages=STAGES):
        places = tl.cast(row, tl.int64) * hidden + lane
        before = tl.load(residual + places, mask=inside, other=0.0)
        total = row_of_all(ctx, x + places, inside)
        kept, scaled = normalised(total, before, scales, hidden, eps, out.dtype.element_ty)
        if SHARED:
            for i in range(n):
                dev.store(ctx, sums + places, kept, (me + i) % n, inside)
                dev.store(ctx, out + places, scaled, (me + i) % n, inside)
        else:
            tl.store(sums + places, kept, mask=inside)
            tl.store(out + places, scaled, mask=inside)
    rounds.leave(ctx, words, number, tl.num_programs(0), True)


@jit
def row_of_all(ctx, places, inside):
    """Return the sum of a row of all PEs, in their order. In a small team all loads are in flight at once."""
    n = dev.n_pes(ctx)
    total = dev.load(ctx, places, 0, inside, 0.0).to(tl.float32)
    if ctx.members <= AT_ONCE:
        for pe in tl.static_range(1, ctx.members):
            value = dev.load(ctx, places, tl.minimum(n - 1, pe), inside, 0.0).to(tl.float32)
            total = tl.where(n > pe, total + value, total)
    else:
        for pe in range(1, n):
            total += dev.load(ctx, places, pe, inside, 0.0).to(tl.float32)
    return total


@triton.jit
def send_words(
    ctx, slots, turns, tokens, hidden, eps, x, residual, weight, out, sums,
    PARTS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """push_rows by words that are their own flags, for few rows: a word of 8 bytes has 4 bytes of data and the turn.

    A row is PARTS times WIDTH lanes of 4 bytes: two elements of 16 bits, or one of 32. A thread has one lane of each part.
    slots: words of 8 bytes, (2, tokens, PEs, PARTS * WIDTH); ctx.piece is the bytes from one PE's words to the next one's.
    """
    element: tl.constexpr = x.dtype.element_ty
    if EARLY:
        gpu.follow()
    turn = tl.load(turns + tl.program_id(0)) + 1
    here = slots.to(tl.int64) + (turn & 1) * tokens * dev.n_pes(ctx) * ctx.piece
    for row in range(tl.program_id(0), tokens, tl.num_programs(0)):
        mine = here + (row * dev.n_pes(ctx) + dev.my_pe(ctx)) * ctx.piece
        send_row(ctx, mine, turn, x + tl.cast(row, tl.int64) * hidden, hidden, PARTS, WIDTH)
    for row in range(tl.program_id(0), tokens, tl.num_programs(0)):
        places = tl.cast(row, tl.int64) * hidden
        rests = load_parts(residual + places, hidden, PARTS, WIDTH)
        gains = load_gains(weight, hidden, element, PARTS, WIDTH)
        first = here + row * dev.n_pes(ctx) * ctx.piece
        finish_row(ctx, first, turn, rests, gains, sums + places, out + places, hidden, eps, PARTS, WIDTH)
    arch.join(ctx)
    tl.store(turns + tl.program_id(0), turn)


@jit
def load_parts(row, hidden, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Load the lanes of a row, as int32, a block for each part."""
    shared: tl.constexpr = shared_by(2, row.dtype.element_ty)
    lanes = row.to(tl.pointer_type(tl.int32)) + tl.arange(0, WIDTH)
    found = ()
    for part in tl.static_range(PARTS):
        inside = (part * WIDTH + tl.arange(0, WIDTH)) * shared < hidden
        found = found + (tl.load(lanes + part * WIDTH, mask=inside, other=0),)
    return found


@jit
def load_gains(weight, hidden, element: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Load the weights: as lanes where they have the elements' type, else those of each lane's first and last element."""
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
def send_row(ctx, mine, turn, row, hidden, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Send a row to ``mine``, the place of this PE's words, on all PEs, the next one first."""
    shared: tl.constexpr = shared_by(2, row.dtype.element_ty)
    words = load_parts(row, hidden, PARTS, WIDTH)  # all before the first store, which no load may pass
    pe = dev.my_pe(ctx)
    for step in tl.static_range(ctx.members):
        pe = tl.where(pe + 1 == dev.n_pes(ctx), 0, pe + 1)
        there = transport.piece_on(ctx, mine, pe)
        for part in tl.static_range(PARTS):
            lanes = part * WIDTH + tl.arange(0, WIDTH)
            used = (lanes * shared < hidden) & (dev.n_pes(ctx) > step)
            transport.store_words(ctx, there, lanes, 0, words[part], turn, used)


@jit
def finish_row(
    ctx, first, turn, rests, gains, kept_row, out_row, hidden, eps, PARTS: tl.constexpr, WIDTH: tl.constexpr
):
    """Wait for the words of all PEs, from ``first`` on, add them and the residual, normalise and store."""
    element: tl.constexpr = out_row.dtype.element_ty
    shared: tl.constexpr = shared_by(2, element)
    lane = tl.arange(0, WIDTH)
    most = tl.cdiv(hidden, shared) - 1
    found = arch.await_parts(ctx, "all_reduce", first, lane, most, turn, ctx.members, PARTS)
    kept, square = (), tl.zeros([WIDTH], tl.float32)
    for part in tl.static_range(PARTS):
        inside = (part * WIDTH + lane) * shared < hidden
        low = summed(ctx, found[part], rests[part], inside, element, 0)
        high = summed(ctx, found[part], rests[part], inside, element, shared - 1)
        kept = kept + ((low, high),)
        square += low * low
        if shared == 2:
            square += high * high
    scale = tl.rsqrt(tl.sum(square, axis=0) / hidden + eps)
    for part in tl.static_range(PARTS):
        lanes = part * WIDTH + lane
        inside = lanes * shared < hidden
        low, high = kept[part]
        first_gain, last_gain = gains_of(gains[part], element)
        store_lanes(kept_row, lanes, low, high, inside)
        store_lanes(out_row, lanes, low * scale * first_gain, high * scale * last_gain, inside)


@jit
def summed(ctx, found, rest, inside, element: tl.constexpr, place: tl.constexpr):
    """Return the sum of one element of the lanes of all PEs, and of the residual's lanes; zeros outside."""
    total = element_in(found[0], element, place)
    for member in tl.static_range(1, ctx.members):
        total = tl.where(dev.n_pes(ctx) > member, total + element_in(found[member], element, place), total)
    return tl.where(inside, arch.rounded(total, element).to(tl.float32) + element_in(rest, element, place), 0.0)


@jit
def gains_of(gains, element: tl.constexpr):
    """Return the weights of the first and the last element of each lane, in float32."""
    if len(gains) == 1:
        return element_in(gains[0], element, 0), element_in(gains[0], element, shared_by(2, element) - 1)
    else:
        return gains[0], gains[1]


@jit
def store_lanes(row, lanes, low, high, inside):
    """Store lanes of one or two elements."""
    element: tl.constexpr = row.dtype.element_ty
    if shared_by(2, element) == 2:
        one = arch.rounded(low, element).to(tl.int16, bitcast=True).to(tl.int32)
        two = arch.rounded(high, element).to(tl.int16, bitcast=True).to(tl.int32)
        tl.store(row.to(tl.pointer_type(tl.int32)) + lanes, both(one, two), mask=inside)
    else:
        tl.store(row + lanes, low, mask=inside)
