"""Kernels that bring tokens to experts on other PEs and their results back, with counts that only GPUs know.

A part is ``each`` tokens of a PE, which one program spreads; a chunk is what goes out before a flag is set. PEs tell each
other how far they are by a flag for each PE and part: epoch * STEPS + step. Step 1: the numbers of the part's rows, their
experts and weights have arrived; step 2 + c: its chunks up to c. Epochs are kept in device memory, so that CUDA graphs
replay the kernels. No PE ends a call before all PEs have begun it, so slots of the call before the last one are free.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import decoded
from pyshmem.ops.experts.places import assign_all, divide, route, sum_rows
from pyshmem.ops.experts.rows import push_parts, rows_from, spread, spread_arrivals, tell, weighted_sum

STEPS = tl.constexpr(1 << 20)
ANY = ("tokens", "room", "pitch")  # numbers for which one kernel is compiled: those of tokens may differ in each call


class Memory(NamedTuple):
    """The memory of dispatch: symmetric, but for the last two. What has a first 2 has one half for each parity.

    flags: (PEs, pitch).  tables: (2, PEs, parts, local), rows for each expert.  experts, weights: (2, PEs, room, TOP), and
    slots: (2, PEs, room, hidden), by the PE that has sent them.  slot_scales: S of each row.  epochs: one for each program.
    """

    flags: Any
    tables: Any
    experts: Any
    weights: Any
    slots: Any
    slot_scales: Any
    epochs: Any
    faults: Any


class Division(NamedTuple):
    """The work of the programs of a kernel: those below ``pushers`` send, those from ``first`` on do the rest.

    parts: of a PE's tokens, of ``each`` tokens.  chunk: its tokens.
    Kernels get these numbers encoded, so that one kernel serves all.
    """

    parts: Any
    each: Any
    chunk: Any
    pushers: Any
    first: Any


class Shape(NamedTuple):
    """hidden: the elements of a row.  local: the experts of a PE."""

    hidden: Any
    local: Any


class Operands(NamedTuple):
    """The arrays of dispatch. rows: (capacity, hidden).  scales, row_scales: S of each row.

    counts, offsets: (local,), (local + 1,).  places, factors: (PEs, room, TOP).
    hits: (room, PEs), whether a PE gets a token.
    """

    x: Any
    scales: Any
    indices: Any
    weights: Any
    rows: Any
    row_scales: Any
    counts: Any
    offsets: Any
    places: Any
    factors: Any
    hits: Any


class Form(NamedTuple):
    """What dispatch is compiled for. TOP: experts of a token.

    PT, PL, PN: powers of 2 for TOP, for local and for all experts.  W: that for hidden.  S: scales of a row.
    BT: tokens that are routed at once.  BR: rows of tables that are loaded at once.
    SENT, SPREAD: rows of tokens that are loaded at once to be sent, and to be spread.
    """

    TOP: int
    PT: int
    PL: int
    PN: int
    BT: int
    BR: int
    W: int
    S: int
    SENT: int
    SPREAD: int


@triton.jit(do_not_specialize=(*ANY, "capacity", "strict"))
def dispatch(ctx, memory, tokens, room, pitch, division, shape, capacity, strict, operands, FORM: tl.constexpr):
    """Send each row once to each PE that has experts for it, and write a row for each of them there, in order of experts.

    Programs below ``pushers`` send, those from ``first`` on spread what arrives: all of them do both, or each does one.
    room: tokens of a PE.
    """
    TOP: tl.constexpr = FORM.TOP
    S: tl.constexpr = FORM.S
    me, n, program, programs = dev.my_pe(ctx), dev.n_pes(ctx), tl.program_id(0), tl.num_programs(0)
    work, hidden, local, flags = decoded_division(division), shape.hidden, shape.local, memory.flags
    parts, each, chunk, first = work.parts, work.each, work.chunk, work.first
    epoch = tl.load(memory.epochs + program) + 1
    here = of_parity(memory, epoch & 1, n, room, parts, local, TOP)
    arrived = rows_from((here.slots, here.slot_scales), (epoch & 1) * n * room, hidden, S)
    source, target = (operands.x, operands.scales), (operands.rows, operands.row_scales)
    for part in range(program, parts, programs):
        route(ctx, here, operands, part, tokens, room, parts, each, local, FORM)
        tell(ctx, flags + me * pitch + part, epoch * STEPS + 1, n + 1)
    if program < work.pushers:
        mine = rows_from(arrived, me * room, hidden, S)
        push_parts(
            ctx, flags + me * pitch, epoch * STEPS + 2, mine, source, operands.indices, tokens, shape, work, FORM
        )
    if program >= first:
        meet = dev.trace_begin(ctx, "meet")
        for pe in range(n):
            dev.wait_until_all(ctx, flags + pe * pitch, parts, None, dev.CMP_GE, epoch * STEPS + 1)
        dev.trace_end(ctx, meet)
        _, totals = sum_rows(here.tables, 0, 0, n * parts, local, FORM.PL, FORM.BR)
        if first == 0:  # what tell waits for, the end of the stores, has come while tables were summed
            for part in range(program, parts, programs):
                tell(ctx, flags + me * pitch + part, epoch * STEPS + 2 + (each - 1) // chunk, n)
        if program == first:
            divide(totals, local, capacity, strict, operands.counts, operands.offsets, memory.faults, FORM.PL)
        for part in range(program - first, parts, programs - first):
            begin, end = part * each, tl.minimum(part * each + each, room)
            assign_all(ctx, here, operands, totals, part, begin, end, room, parts, local, capacity, FORM)
            spread(ctx, source, operands.places + me * room * TOP, target, begin, end, hidden, FORM, FORM.SPREAD)
            for start in range(begin, end, chunk):
                step, last = epoch * STEPS + 2 + (start - begin) // chunk, tl.minimum(start + chunk, end)
                spread_arrivals(
                    ctx, flags + part, pitch, step, arrived, operands, start, last, room, hidden, FORM, FORM.SPREAD
                )
    arch.join(ctx)  # all threads have loaded the epoch
    tl.store(memory.epochs + program, epoch)


@arch.jit
def of_parity(memory, parity, n, room, parts, local, TOP: tl.constexpr):
    """Return the memory with the halves of tables, experts and weights that a call takes."""
    lists = parity * n * room * TOP
    return Memory(
        memory.flags, memory.tables + parity * n * parts * local, memory.experts + lists, memory.weights + lists,
        memory.slots, memory.slot_scales, memory.epochs, memory.faults,
    )  # fmt: skip


@arch.jit
def decoded_division(division):
    """Return the numbers of a division."""
    return Division(
        decoded(division.parts), decoded(division.each), decoded(division.chunk), decoded(division.pushers),
        decoded(division.first),
    )  # fmt: skip


class Exchange(NamedTuple):
    """The memory of combine. slots: (2, PEs, room, hidden), by the PE that has made the sums.  Others: as in Memory."""

    flags: Any
    slots: Any
    epochs: Any


class Results(NamedTuple):
    """The arrays of combine. out: (tokens, hidden).  Others: as in Operands."""

    rows: Any
    places: Any
    factors: Any
    hits: Any
    out: Any


@triton.jit(do_not_specialize=ANY)
def combine(
    ctx, exchange, tokens, room, pitch, division, hidden, results, TOP: tl.constexpr, W: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Send each peer the weighted sums of the rows of its tokens, and add those of all PEs for this PE's tokens."""
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    program, lane = tl.program_id(0), tl.arange(0, W)
    rows, places, factors = results.rows, results.places, results.factors
    element: tl.constexpr = results.out.dtype.element_ty
    work = decoded_division(division)
    parts, each, chunk, flags = work.parts, work.each, work.chunk, exchange.flags
    epoch = tl.load(exchange.epochs + program) + 1
    slots = exchange.slots + (epoch & 1) * n * room * hidden
    if program < work.pushers:
        for start in range(0, each, chunk):
            for part in range(program, parts, work.pushers):
                begin = part * each + start
                end = tl.minimum(tl.minimum(start + chunk, each) + part * each, room)
                mine = slots + tl.cast(me * room, tl.int64) * hidden
                parcel = dev.trace_begin(ctx, "parcel")
                send_sums(ctx, mine, results, begin, end, room, hidden, TOP, W, AT_ONCE)
                dev.trace_end(ctx, parcel)
                tell(ctx, flags + me * pitch + part, epoch * STEPS + 2 + start // chunk, n)
    if program >= work.first:
        for part in range(program - work.first, parts, tl.num_programs(0) - work.first):
            for start in range(0, each, chunk):
                for i in range(1, n):
                    flag = flags + (me + i) % n * pitch + part
                    dev.signal_wait_until(ctx, flag, dev.CMP_GE, epoch * STEPS + 2 + start // chunk)
                end = tl.minimum(tl.minimum(start + chunk, each) + part * each, tokens)
                span = dev.trace_begin(ctx, "sums")
                for token in range(part * each + start, end):
                    at = (me * room + token) * TOP
                    own = weighted_sum(rows, places + at, factors + at, hidden, TOP, W, AT_ONCE)
                    total = tl.zeros([W], tl.float32)
                    for pe in range(n):  # in the order of experts
                        inside = (lane < hidden) & (tl.load(results.hits + token * n + pe) > 0) & (pe != me)
                        sums = slots + tl.cast(pe * room + token, tl.int64) * hidden + lane
                        other = tl.load(sums, mask=inside, other=0.0).to(tl.float32)
                        total += tl.where(pe == me, own, other)
                    final = arch.rounded(total, element)
                    tl.store(results.out + tl.cast(token, tl.int64) * hidden + lane, final, mask=lane < hidden)
                dev.trace_end(ctx, span)
    arch.join(ctx)  # all threads have loaded the epoch
    tl.store(exchange.epochs + program, epoch)


@arch.jit
def send_sums(ctx, mine, results, begin, end, room, hidden, TOP: tl.constexpr, W: tl.constexpr, AT_ONCE: tl.constexpr):
    """Send sums for tokens ``begin`` to ``end`` - 1 of each peer to ``mine``, this PE's slots there."""
    lane = tl.arange(0, W)
    for i in range(1, dev.n_pes(ctx)):
        pe = (dev.my_pe(ctx) + i) % dev.n_pes(ctx)
        for token in range(begin, end):
            places = results.places + (pe * room + token) * TOP
            factors = results.factors + (pe * room + token) * TOP
            total = weighted_sum(results.rows, places, factors, hidden, TOP, W, AT_ONCE)
            inside = (lane < hidden) & (tl.load(places) != -1)
            there = mine + tl.cast(token, tl.int64) * hidden + lane
            dev.store(ctx, there, arch.rounded(total, results.out.dtype.element_ty), pe, inside)


@triton.jit
def record(found, faults):
    """Record the faults that a call has found. found, faults: pairs of a fault, 0 for none, and what is wanted."""
    pair = tl.arange(0, 2)
    fault = tl.load(found + 2 * pair)
    tl.store(faults + 2 * pair + 1, tl.load(found + 2 * pair + 1), mask=fault > 0)
    tl.store(faults + 2 * pair, fault, mask=fault > 0)
