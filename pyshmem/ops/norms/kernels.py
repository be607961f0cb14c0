"""Kernels that sum rows over all PEs, add the residual and normalise: each program makes whole rows.

Every kernel adds the rows in the order of PEs in float32 and rounds the sum to their type, as an all-reduce does. Turns are
counted in device memory, so that CUDA graphs replay the kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.ops import rounds
from pyshmem.ops.float8 import CODES, coded, factor_of
from pyshmem.ops.shares import share_size, share_start

AT_ONCE = tl.constexpr(4)  # PEs whose rows are loaded at once


@jit
def normalised(total, residual, gains, hidden, eps, KEPT: tl.constexpr, OUT: tl.constexpr):
    """Return a row's new residual, its normalised form, and its scale if OUT is CODES; else that is anything.

    total: the sum in float32, with zeros outside the row.
    """
    row = arch.rounded(total, KEPT).to(tl.float32) + residual.to(tl.float32)
    result = row * tl.rsqrt(tl.sum(row * row, axis=0) / hidden + eps) * gains.to(tl.float32)
    if OUT == CODES:
        scale = factor_of(tl.max(tl.abs(result), axis=0))
        return arch.rounded(row, KEPT), coded(result / scale), scale
    else:
        return arch.rounded(row, KEPT), arch.rounded(result, OUT), eps


@jit
def store_row(places, kept, made, scale, sums, out, scales, row, inside):
    """Store what normalised has returned of ``row``, whose elements are at ``places``."""
    tl.store(sums + places, kept, mask=inside)
    tl.store(out + places, made, mask=inside)
    if out.dtype.element_ty == CODES:
        tl.store(scales + row, scale)


@jit
def share_row(ctx, places, made, scale, out, scales, row, inside):
    """Store a normalised row, and its scale, on all PEs, the next one first. inside: of the row's elements, if any."""
    for i in range(1, dev.n_pes(ctx) + 1):
        pe = (dev.my_pe(ctx) + i) % dev.n_pes(ctx)
        dev.store(ctx, out + places, made, pe, inside)
        if out.dtype.element_ty == CODES:
            dev.store(ctx, scales + row, scale, pe)


@triton.jit
def normalise_rows(tokens, hidden, eps, total, residual, weight, out, sums, scales, BLOCK: tl.constexpr):
    """Normalise rows that are summed already. sums: the new residual."""
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    gains = tl.load(weight + lane, mask=inside, other=0.0)
    for row in range(tl.program_id(0), tokens, tl.num_programs(0)):
        places = tl.cast(row, tl.int64) * hidden + lane
        found = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(residual + places, mask=inside, other=0.0)
        kept, made, scale = normalised(found, before, gains, hidden, eps, sums.dtype.element_ty, out.dtype.element_ty)
        store_row(places, kept, made, scale, sums, out, scales, row, inside)


@triton.jit
def push_rows(
    ctx, flags, slots, turns, tokens, hidden, eps, x, residual, weight, out, sums, scales,
    BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Push this PE's rows into its slots on all peers, a flag behind each, and make all rows as they arrive.

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
    gains = tl.load(weight + lane, mask=inside, other=0.0)
    program, programs = tl.program_id(0), tl.num_programs(0)
    for row in range(program, tokens + programs, programs):
        if row < tokens:
            values = tl.load(x + tl.cast(row, tl.int64) * hidden + lane, mask=inside)
            there = here + tl.cast(me * tokens + row, tl.int64) * hidden + lane
            for i in range(1, n):
                dev.store(ctx, there, values, (me + i) % n, inside)
        made_row = row - programs  # while this one is on its way, for whose end the flag waits
        if (made_row >= 0) & (made_row < tokens):
            places = tl.cast(made_row, tl.int64) * hidden + lane
            before = tl.load(residual + places, mask=inside, other=0.0)
            for i in range(1, n):
                dev.signal_wait_until(ctx, flags + (me + i) % n * tokens + made_row, dev.CMP_GE, turn)
            own = tl.load(x + places, mask=inside, other=0.0)
            total = row_of_slots(ctx, own, here + places, tokens, hidden, inside)
            kept, made, scale = normalised(
                total, before, gains, hidden, eps, sums.dtype.element_ty, out.dtype.element_ty
            )
            store_row(places, kept, made, scale, sums, out, scales, made_row, inside)
        if row < tokens:
            tell_peers(ctx, flags + me * tokens + row, turn)
    arch.join(ctx)  # all threads have loaded the turn
    tl.store(turns + program, turn)


@jit
def row_of_slots(ctx, own, places, tokens, hidden, inside):
    """Return the sum of this PE's ``own`` row and of those in slots, in the order of PEs.

    In a small team all loads are in flight at once.
    """
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    pitch = tl.cast(tokens, tl.int64) * hidden
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
def push_shares(
    ctx, flags, slots, turns, tokens, hidden, eps, x, residual, weight, out, sums, scales,
    BLOCK: tl.constexpr, EARLY: tl.constexpr, FAN: tl.constexpr,
):  # fmt: skip
    """Push each row of x to the PE in whose share it is, a flag behind it, and make the rows of this PE's share.

    FAN: normalised rows, which then are those of all shares, go to all PEs, with flags again; else to this PE alone.
    slots: (2, PEs, most, hidden), most being the largest share, for even and odd turns.  flags: (2, PEs, most), of rows and
    of normalised ones.  turns: a count for each program.
    Shares that lack the last row get its flags, too. So no PE ends a turn before all PEs have begun it: what is in the slots
    of the turn before the last one, and in out, has been read.
    """
    if EARLY:
        gpu.follow()
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    most = tl.cdiv(tokens, n)
    made_flags = flags + n * most
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    turn = tl.load(turns + tl.program_id(0)) + 1
    here = slots + (turn & 1) * n * most * hidden
    for row in range(tl.program_id(0), most, tl.num_programs(0)):
        send_to_owners(ctx, here + tl.cast(me * most + row, tl.int64) * hidden, x, row, tokens, hidden, BLOCK)
        tell_peers(ctx, flags + me * most + row, turn)
    gains = tl.load(weight + lane, mask=inside, other=0.0)
    first, count = share_start(tokens, me, n), share_size(tokens, me, n)
    for row in range(tl.program_id(0), most, tl.num_programs(0)):
        for i in range(1, n):
            dev.signal_wait_until(ctx, flags + (me + i) % n * most + row, dev.CMP_GE, turn)
        if row < count:
            places = tl.cast(row, tl.int64) * hidden + lane
            before = tl.load(residual + places, mask=inside, other=0.0)
            own = tl.load(x + tl.cast(first, tl.int64) * hidden + places, mask=inside, other=0.0)
            total = row_of_slots(ctx, own, here + places, most, hidden, inside)
            kept, made, scale = normalised(
                total, before, gains, hidden, eps, sums.dtype.element_ty, out.dtype.element_ty
            )
            if FAN:
                tl.store(sums + places, kept, mask=inside)
                share_row(
                    ctx, tl.cast(first, tl.int64) * hidden + places, made, scale, out, scales, first + row, inside
                )
            else:
                store_row(places, kept, made, scale, sums, out, scales, row, inside)
        if FAN:
            tell_peers(ctx, made_flags + me * most + row, turn)
    if FAN:
        for row in range(tl.program_id(0), most, tl.num_programs(0)):
            for i in range(1, n):
                dev.signal_wait_until(ctx, made_flags + (me + i) % n * most + row, dev.CMP_GE, turn)
    arch.join(ctx)  # all threads have loaded the turn
    tl.store(turns + tl.program_id(0), turn)


@jit
def send_to_owners(ctx, slot, x, row, tokens, hidden, BLOCK: tl.constexpr):
    """Send row ``row`` of each peer's share of x to the ``slot`` on that PE, the next one first."""
    n, lane = dev.n_pes(ctx), tl.arange(0, BLOCK)
    for i in range(1, n):
        pe = (dev.my_pe(ctx) + i) % n
        if row < share_size(tokens, pe, n):
            source = x + tl.cast(share_start(tokens, pe, n) + row, tl.int64) * hidden + lane
            dev.store(ctx, slot + lane, tl.load(source, mask=lane < hidden), pe, lane < hidden)


@jit
def tell_peers(ctx, flag, turn):
    """Set a flag on all peers, behind what this program has stored."""
    for i in range(1, dev.n_pes(ctx)):
        dev.signal_set(ctx, flag, turn, (dev.my_pe(ctx) + i) % dev.n_pes(ctx))


@triton.jit
def pull_rows(
    ctx, words, tokens, hidden, eps, x, residual, weight, out, sums, scales,
    BLOCK: tl.constexpr, EARLY: tl.constexpr, SHARED: tl.constexpr, OWN: tl.constexpr, FAN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Make rows of the symmetric x of all PEs: all rows or, if SHARED, those of this PE's share.

    OWN: residual and sums have only those; else sums of them go to all PEs, too.  FAN: out has all rows, and they go to all
    PEs. Arrays that peers write are symmetric.  words: those of rounds.  STAGES: 2 if a row is loaded while the one before
    is made.
    """
    if EARLY:
        gpu.follow()
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    number = rounds.enter(ctx, words)
    if tl.program_id(0) == 0:
        rounds.arrive(ctx, words, number)
    lane = tl.arange(0, BLOCK)
    inside = lane < hidden
    gains = tl.load(weight + lane, mask=inside, other=0.0)
    first, count = share_start(tokens, me, n), share_size(tokens, me, n)
    if not SHARED:
        first, count = first * 0, count * 0 + tokens
    rounds.await_arrivals(ctx, words, number)
    for row in tl.range(first + tl.program_id(0), first + count, tl.num_programs(0), num_stages=STAGES):
        places = tl.cast(row, tl.int64) * hidden + lane
        held = tl.cast(row - first, tl.int64) * hidden + lane if OWN else places
        before = tl.load(residual + held, mask=inside, other=0.0)
        total = row_of_all(ctx, x + places, inside)
        kept, made, scale = normalised(total, before, gains, hidden, eps, sums.dtype.element_ty, out.dtype.element_ty)
        if FAN:
            share_row(ctx, places, made, scale, out, scales, row, inside)
            if OWN:
                tl.store(sums + held, kept, mask=inside)
            else:
                for i in range(1, n + 1):
                    dev.store(ctx, sums + places, kept, (me + i) % n, inside)
        else:
            store_row(held, kept, made, scale, sums, out, scales, row - first if OWN else row, inside)
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
