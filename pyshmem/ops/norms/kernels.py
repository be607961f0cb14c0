"""Kernels that sum rows over all PEs, add the residual and normalise. Each program makes whole rows.

Every kernel adds the rows in the order of PEs in float32 and rounds the sum to their type, as an all-reduce does. Epochs are
kept in device memory, so that CUDA graphs replay the kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import decoded, jit
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.ops import protocol
from pyshmem.ops.float8 import CODES, coded, factor_of
from pyshmem.ops.shares import share_size, share_start

AT_ONCE = tl.constexpr(4)  # PEs whose rows are loaded at once


class Shape(NamedTuple):
    """tokens: the rows of x on a PE, or those to normalise; room: those that slots have room for; both encoded.

    hidden: the elements of a row.
    """

    tokens: Any
    room: Any
    hidden: Any
    eps: Any


class Rows(NamedTuple):
    """The arrays of a call. sums: the new residual.  scales: of the rows of out, if these have 8 bits."""

    x: Any
    residual: Any
    weight: Any
    out: Any
    sums: Any
    scales: Any


@jit
def normalised(total, residual, gains, shape, rows):
    """Return a row's new residual, its normalised form, and its scale if out has 8 bits; else that is anything.

    total: the sum in float32, with zeros outside the row.
    """
    kept: tl.constexpr = rows.sums.dtype.element_ty
    row = arch.rounded(total, kept).to(tl.float32) + residual.to(tl.float32)
    result = row * tl.rsqrt(tl.sum(row * row, axis=0) / shape.hidden + shape.eps) * gains.to(tl.float32)
    if rows.out.dtype.element_ty == CODES:
        scale = factor_of(tl.max(tl.abs(result), axis=0))
        return arch.rounded(row, kept), coded(result / scale), scale
    else:
        return arch.rounded(row, kept), arch.rounded(result, rows.out.dtype.element_ty), shape.eps


@jit
def store_row(rows, row, places, inside, kept, made, scale):
    """Store what normalised has returned of ``row``, whose elements are at ``places``."""
    tl.store(rows.sums + places, kept, mask=inside)
    tl.store(rows.out + places, made, mask=inside)
    if rows.out.dtype.element_ty == CODES:
        tl.store(rows.scales + row, scale)


@jit
def store_row_on_all(ctx, rows, row, places, inside, made, scale):
    """Store a normalised row, and its scale, on all PEs, the next one first."""
    for i in range(1, dev.n_pes(ctx) + 1):
        pe = (dev.my_pe(ctx) + i) % dev.n_pes(ctx)
        dev.store(ctx, rows.out + places, made, pe, inside)
        if rows.out.dtype.element_ty == CODES:
            dev.store(ctx, rows.scales + row, scale, pe)


@triton.jit
def normalise_rows(shape, rows, BLOCK: tl.constexpr):
    """Normalise the rows of x, which are sums already."""
    lane = tl.arange(0, BLOCK)
    inside = lane < shape.hidden
    gains = tl.load(rows.weight + lane, mask=inside, other=0.0)
    for row in range(tl.program_id(0), decoded(shape.tokens), tl.num_programs(0)):
        places = tl.cast(row, tl.int64) * shape.hidden + lane
        total = tl.load(rows.x + places, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(rows.residual + places, mask=inside, other=0.0)
        kept, made, scale = normalised(total, before, gains, shape, rows)
        store_row(rows, row, places, inside, kept, made, scale)


@triton.jit
def push_rows(ctx, flags, slots, epochs, shape, rows, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """Push this PE's rows into its slots on all peers, a flag behind each, and make all rows as they arrive.

    slots: (2, PEs, room, hidden), one half for each parity.  flags: (PEs, room).  epochs: one for each program.
    No PE ends a call before all PEs have begun it, so the slots of the call before the last one are free, though calls have
    other numbers of tokens: slots, flags and programs are those of the room.
    """
    if EARLY:
        gpu.follow()
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    tokens, room, hidden = decoded(shape.tokens), decoded(shape.room), shape.hidden
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    epoch = tl.load(epochs + tl.program_id(0)) + 1
    here = slots + (epoch & 1) * n * room * hidden
    gains = tl.load(rows.weight + lane, mask=inside, other=0.0)
    program, programs = tl.program_id(0), tl.num_programs(0)
    for row in range(program, tokens + programs, programs):
        if row < tokens:
            parcel = dev.trace_begin(ctx, "parcel")
            values = tl.load(rows.x + tl.cast(row, tl.int64) * hidden + lane, mask=inside)
            there = here + tl.cast(me * room + row, tl.int64) * hidden + lane
            for i in range(1, n):
                dev.store(ctx, there, values, (me + i) % n, inside)
            dev.trace_end(ctx, parcel)
        made_row = row - programs  # while this one is on its way: its flag waits for the end of its stores
        if (made_row >= 0) & (made_row < tokens):
            places = tl.cast(made_row, tl.int64) * hidden + lane
            before = tl.load(rows.residual + places, mask=inside, other=0.0)
            for i in range(1, n):
                dev.signal_wait_until(ctx, flags + (me + i) % n * room + made_row, dev.CMP_GE, epoch)
            span = dev.trace_begin(ctx, "row")
            own = tl.load(rows.x + places, mask=inside, other=0.0)
            total = row_of_slots(ctx, own, here + places, room, hidden, inside)
            kept, made, scale = normalised(total, before, gains, shape, rows)
            store_row(rows, made_row, places, inside, kept, made, scale)
            dev.trace_end(ctx, span)
        if row < tokens:
            protocol.tell_peers(ctx, flags + me * room + row, epoch)
    arch.join(ctx)  # all threads have loaded the epoch
    tl.store(epochs + program, epoch)


@jit
def row_of_slots(ctx, own, places, room, hidden, inside):
    """Return the sum of this PE's ``own`` row and of those in slots, in the order of PEs.

    In a small team all loads are in flight at once.
    """
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    pitch = tl.cast(room, tl.int64) * hidden
    total = tl.zeros(own.shape, tl.float32)
    if ctx.members <= AT_ONCE:
        for pe in tl.static_range(ctx.members):
            other = tl.load(places + pe * pitch, mask=inside & (pe != me) & (pe < n), other=0.0)
            value = tl.where(pe == me, own, other).to(tl.float32)
            total = tl.where(n > pe, total + value, total)
    else:
        for pe in range(n):
            other = tl.load(places + pe * pitch, mask=inside & (pe != me), other=0.0)
            total += tl.where(pe == me, own, other).to(tl.float32)
    return total


@triton.jit
def push_shares(ctx, flags, slots, epochs, shape, rows, BLOCK: tl.constexpr, EARLY: tl.constexpr, FAN: tl.constexpr):
    """Push each row of x to the PE in whose share it is, a flag behind it, and make the rows of this PE's share.

    FAN: normalised rows, which then are those of all shares, go to all PEs, with flags again; else to this PE alone.
    slots: (2, PEs, most, hidden), most being the largest share of the room, one half for each parity.  epochs: one for each
    program.  flags: (2, PEs, most), of rows and of normalised ones.
    Shares that lack the last row get its flags, too. So no PE ends a call before all PEs have begun it: what is in the slots
    of the call before the last one, and in out, has been read.
    """
    if EARLY:
        gpu.follow()
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    tokens, hidden = decoded(shape.tokens), shape.hidden
    largest, most = tl.cdiv(tokens, n), tl.cdiv(decoded(shape.room), n)
    made_flags = flags + n * most
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    epoch = tl.load(epochs + tl.program_id(0)) + 1
    here = slots + (epoch & 1) * n * most * hidden
    for row in range(tl.program_id(0), largest, tl.num_programs(0)):
        send_to_owners(ctx, here + tl.cast(me * most + row, tl.int64) * hidden, rows.x, row, tokens, hidden, BLOCK)
        protocol.tell_peers(ctx, flags + me * most + row, epoch)
    gains = tl.load(rows.weight + lane, mask=inside, other=0.0)
    first, count = share_start(tokens, me, n), share_size(tokens, me, n)
    for row in range(tl.program_id(0), largest, tl.num_programs(0)):
        for i in range(1, n):
            dev.signal_wait_until(ctx, flags + (me + i) % n * most + row, dev.CMP_GE, epoch)
        if row < count:
            span = dev.trace_begin(ctx, "row")
            places = tl.cast(row, tl.int64) * hidden + lane
            before = tl.load(rows.residual + places, mask=inside, other=0.0)
            own = tl.load(rows.x + tl.cast(first, tl.int64) * hidden + places, mask=inside, other=0.0)
            total = row_of_slots(ctx, own, here + places, most, hidden, inside)
            kept, made, scale = normalised(total, before, gains, shape, rows)
            if FAN:
                tl.store(rows.sums + places, kept, mask=inside)
                everywhere = tl.cast(first, tl.int64) * hidden + places
                store_row_on_all(ctx, rows, first + row, everywhere, inside, made, scale)
            else:
                store_row(rows, row, places, inside, kept, made, scale)
            dev.trace_end(ctx, span)
        if FAN:
            protocol.tell_peers(ctx, made_flags + me * most + row, epoch)
    if FAN:
        for row in range(tl.program_id(0), largest, tl.num_programs(0)):
            for i in range(1, n):
                dev.signal_wait_until(ctx, made_flags + (me + i) % n * most + row, dev.CMP_GE, epoch)
    arch.join(ctx)  # all threads have loaded the epoch
    tl.store(epochs + tl.program_id(0), epoch)


@jit
def send_to_owners(ctx, slot, x, row, tokens, hidden, BLOCK: tl.constexpr):
    """Send row ``row`` of each peer's share of x to the ``slot`` on that PE, the next one first."""
    n, lane = dev.n_pes(ctx), tl.arange(0, BLOCK)
    parcel = dev.trace_begin(ctx, "parcel")
    for i in range(1, n):
        pe = (dev.my_pe(ctx) + i) % n
        if row < share_size(tokens, pe, n):
            source = x + tl.cast(share_start(tokens, pe, n) + row, tl.int64) * hidden + lane
            dev.store(ctx, slot + lane, tl.load(source, mask=lane < hidden), pe, lane < hidden)
    dev.trace_end(ctx, parcel)


@triton.jit
def pull_rows(
    ctx, words, shape, rows, BLOCK: tl.constexpr, EARLY: tl.constexpr, SHARED: tl.constexpr, FAN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Make rows of the symmetric x of all PEs: all rows or, if SHARED, those of this PE's share.

    FAN: out is symmetric and has the rows of all shares, and this PE's go to all PEs.  words: those of rounds.
    STAGES: 2 if a row is loaded while the one before is made.
    """
    if EARLY:
        gpu.follow()
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    tokens, hidden = decoded(shape.tokens), shape.hidden
    epoch = protocol.enter(ctx, words)
    if tl.program_id(0) == 0:
        protocol.arrive(ctx, words, epoch)
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    gains = tl.load(rows.weight + lane, mask=inside, other=0.0)
    first, count = share_start(tokens, me, n), share_size(tokens, me, n)
    if not SHARED:
        first, count = first * 0, count * 0 + tokens
    protocol.await_arrivals(ctx, words, epoch)
    for row in tl.range(first + tl.program_id(0), first + count, tl.num_programs(0), num_stages=STAGES):
        span = dev.trace_begin(ctx, "row")
        places = tl.cast(row, tl.int64) * hidden + lane
        held = tl.cast(row - first, tl.int64) * hidden + lane if SHARED else places
        before = tl.load(rows.residual + held, mask=inside, other=0.0)
        total = row_of_all(ctx, rows.x + places, inside)
        kept, made, scale = normalised(total, before, gains, shape, rows)
        if FAN:
            store_row_on_all(ctx, rows, row, places, inside, made, scale)
            tl.store(rows.sums + held, kept, mask=inside)
        else:
            store_row(rows, row - first if SHARED else row, held, inside, kept, made, scale)
        dev.trace_end(ctx, span)
    protocol.leave(ctx, words, epoch, tl.num_programs(0), True)


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
