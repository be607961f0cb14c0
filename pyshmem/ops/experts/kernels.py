"""Kernels that bring tokens to experts on other PEs and their results back, with counts that only GPUs know.

A part is ``each`` tokens of a PE, which one program spreads; a chunk is what goes out before a flag is set. PEs tell each
other how far they are by a word for each PE and part: turn * STEPS + step. Step 1: the numbers of the part's rows, their
experts and weights are there; step 2 + c: its chunks up to c. Turns are counted in device memory, so that CUDA graphs replay
the kernels. No PE ends a turn before all PEs have begun it, so slots of the turn before the last one are free.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.ops.experts.places import assign_all, divide, route, sum_rows
from pyshmem.ops.experts.rows import push_parts, rows_from, spread, spread_arrivals, tell, weighted_sum

STEPS = tl.constexpr(1 << 20)
ANY = (  # numbers for which one kernel is compiled: those of tokens may differ in each call
    "tokens", "room", "pitch", "parts", "each", "chunk", "pushers", "first",
)  # fmt: skip


@triton.jit(do_not_specialize=(*ANY, "capacity", "strict"))
def dispatch(
    ctx, flags, tables, their_experts, their_weights, slots, slot_scales, turns, faults,
    tokens, room, hidden, local, pitch, parts, each, chunk, pushers, first, capacity, strict,
    x, scales, indices, weights, rows, row_scales, counts, offsets, places, factors, hits,
    TOP: tl.constexpr, PT: tl.constexpr, PL: tl.constexpr, PN: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr,
    W: tl.constexpr, S: tl.constexpr, SENT: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """Send each row once to each PE that has experts for it, and write a row for each of them there, in order of experts.

    Programs below ``pushers`` send, those from ``first`` on spread what arrives: all of them do both, or each does one.
    flags: (PEs, pitch).  tables: (2, PEs, parts, local), rows for each expert.  their_experts, their_weights: (2, PEs, room,
    TOP), and slots: (2, PEs, room, hidden), by the PE that has sent them.  local: experts of a PE.  room: tokens of a PE.
    rows: (capacity, hidden).  scales, slot_scales, row_scales: S of each row.  counts, offsets: (local,), (local + 1,).
    places, factors: (PEs, room, TOP).  hits: (room, PEs), whether a PE gets a token.  PT, PL, PN: powers of 2 for TOP, for
    local and for all experts.  BT: tokens that are routed at once.  BR: rows of tables that are loaded at once.
    SENT, SPREAD: rows of tokens that are.
    """
    me, n, program, programs = dev.my_pe(ctx), dev.n_pes(ctx), tl.program_id(0), tl.num_programs(0)
    turn = tl.load(turns + program) + 1
    tables, away = tables + (turn & 1) * n * parts * local, (turn & 1) * n * room
    their_experts, their_weights = their_experts + away * TOP, their_weights + away * TOP
    arrived, source, target = rows_from((slots, slot_scales), away, hidden, S), (x, scales), (rows, row_scales)
    for part in range(program, parts, programs):
        route(
            ctx, tables + (me * parts + part) * local, their_experts + me * room * TOP, their_weights + me * room * TOP,
            faults, part * each, tl.minimum(part * each + each, room), tokens, local, indices, weights, hits,
            TOP, PT, PN, BT,
        )  # fmt: skip
        tell(ctx, flags + me * pitch + part, turn * STEPS + 1, n + 1)
    if program < pushers:
        push_parts(
            ctx, flags + me * pitch, turn * STEPS + 2, rows_from(arrived, me * room, hidden, S), tokens, hidden,
            local, parts, each, chunk, pushers, first > 0, source, indices, TOP, PT, W, S, SENT,
        )  # fmt: skip
    if program >= first:
        for pe in range(n):
            dev.wait_until_all(ctx, flags + pe * pitch, parts, None, dev.CMP_GE, turn * STEPS + 1)
        _, totals = sum_rows(tables, 0, 0, n * parts, local, PL, BR)
        if first == 0:  # what tell waits for, the end of the stores, has come while tables were summed
            for part in range(program, parts, programs):
                tell(ctx, flags + me * pitch + part, turn * STEPS + 2 + (each - 1) // chunk, n)
        if program == first:
            divide(totals, local, capacity, strict, counts, offsets, faults, PL)
        for part in range(program - first, parts, programs - first):
            begin, end = part * each, tl.minimum(part * each + each, room)
            assign_all(
                ctx, room, parts, part, tables, their_experts, their_weights, places, factors, totals, begin, end, local,
                capacity, TOP, PT, PL, BT, BR,
            )  # fmt: skip
            spread(source, places + me * room * TOP, target, begin, end, hidden, TOP, W, S, SPREAD)
            for start in range(begin, end, chunk):
                spread_arrivals(
                    ctx, flags + part, pitch, turn * STEPS + 2 + (start - begin) // chunk, arrived, places, target, start,
                    tl.minimum(start + chunk, end), room, hidden, TOP, W, S, SPREAD,
                )  # fmt: skip
    arch.join(ctx)  # all threads have loaded the turn
    tl.store(turns + program, turn)


@triton.jit(do_not_specialize=ANY)
def combine(
    ctx, flags, slots, turns, tokens, room, hidden, pitch, parts, each, chunk, pushers, first,
    rows, places, factors, hits, out,
    TOP: tl.constexpr, W: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Send each peer the weighted sums of the rows of its tokens, and add those of all PEs for this PE's tokens.

    slots: (2, PEs, room, hidden), by the PE that has made the sums.  out: (tokens, hidden).  Others: as in dispatch.
    """
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    program, lane = tl.program_id(0), tl.arange(0, W)
    element: tl.constexpr = out.dtype.element_ty
    turn = tl.load(turns + program) + 1
    slots += (turn & 1) * n * room * hidden
    if program < pushers:
        for start in range(0, each, chunk):
            for part in range(program, parts, pushers):
                begin = part * each + start
                end = tl.minimum(tl.minimum(start + chunk, each) + part * each, room)
                for i in range(1, n):
                    pe = (me + i) % n
                    for token in range(begin, end):
                        at = (pe * room + token) * TOP
                        total = weighted_sum(rows, places + at, factors + at, hidden, TOP, W, AT_ONCE)
                        inside = (lane < hidden) & (tl.load(places + at) != -1)
                        there = slots + tl.cast(me * room + token, tl.int64) * hidden + lane
                        dev.store(ctx, there, arch.rounded(total, element), pe, inside)
                tell(ctx, flags + me * pitch + part, turn * STEPS + 2 + start // chunk, n)
    if program >= first:
        for part in range(program - first, parts, tl.num_programs(0) - first):
            for start in range(0, each, chunk):
                for i in range(1, n):
                    flag = flags + (me + i) % n * pitch + part
                    dev.signal_wait_until(ctx, flag, dev.CMP_GE, turn * STEPS + 2 + start // chunk)
                end = tl.minimum(tl.minimum(start + chunk, each) + part * each, tokens)
                for token in range(part * each + start, end):
                    at = (me * room + token) * TOP
                    own = weighted_sum(rows, places + at, factors + at, hidden, TOP, W, AT_ONCE)
                    total = tl.zeros([W], tl.float32)
                    for pe in range(n):  # in the order of experts
                        inside = (lane < hidden) & (tl.load(hits + token * n + pe) > 0) & (pe != me)
                        sums = slots + tl.cast(pe * room + token, tl.int64) * hidden + lane
                        other = tl.load(sums, mask=inside, other=0.0).to(tl.float32)
                        total += tl.where(pe == me, own, other)
                    final = arch.rounded(total, element)
                    tl.store(out + tl.cast(token, tl.int64) * hidden + lane, final, mask=lane < hidden)
    arch.join(ctx)  # all threads have loaded the turn
    tl.store(turns + program, turn)


@triton.jit
def note(found, faults):
    """Keep the faults that a call has found. found, faults: pairs of a fault, 0 for none, and what is wanted."""
    pair = tl.arange(0, 2)
    fault = tl.load(found + 2 * pair)
    tl.store(faults + 2 * pair + 1, tl.load(found + 2 * pair + 1), mask=fault > 0)
    tl.store(faults + 2 * pair, fault, mask=fault > 0)
