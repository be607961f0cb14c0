"""Kernels that bring tokens to experts on other PEs and their results back, with counts that only GPUs know.

A part is ``each`` tokens of a PE, which one program spreads; a chunk is what goes out before a flag is set. PEs tell each
other how far they are by a word for each PE and part: turn * STEPS + step. Step 1: the numbers of the part's rows, their
experts and weights are there; step 2 + c: its chunks up to c. Turns are counted in device memory, so that CUDA graphs replay
the kernels. No PE ends a turn before all PEs have begun it, so slots of the turn before the last one are free.

Of each token and PE, ``places`` has its rows' numbers there in the order of experts, then -1; -2 is a row without room.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import jit

STEPS = tl.constexpr(1 << 20)
ANY = (  # numbers for which one kernel is compiled: those of tokens may differ in each call
    "tokens", "room", "pitch", "parts", "each", "chunk", "pushers", "first",
)  # fmt: skip


@triton.jit(do_not_specialize=(*ANY, "capacity", "strict"))
def dispatch(
    ctx, flags, tables, their_experts, their_weights, slots, turns, faults,
    tokens, room, hidden, local, pitch, parts, each, chunk, pushers, first, capacity, strict,
    x, indices, weights, rows, counts, offsets, places, factors, hits,
    TOP: tl.constexpr, PT: tl.constexpr, PL: tl.constexpr, PN: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr,
    W: tl.constexpr, SENT: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """Send each row once to each PE that has experts for it, and write a row for each of them there, in order of experts.

    Programs below ``pushers`` send, those from ``first`` on spread what arrives: all of them do both, or each does one.
    flags: (PEs, pitch).  tables: (2, PEs, parts, local), rows for each expert.  their_experts, their_weights: (2, PEs, room,
    TOP), and slots: (2, PEs, room, hidden), by the PE that has sent them.  local: experts of a PE.  room: tokens of a PE.
    rows: (capacity, hidden).  counts, offsets: (local,), (local + 1,).  places, factors: (PEs, room, TOP).  hits: (room,
    PEs), whether a PE gets a token.  PT, PL, PN: powers of 2 for TOP, for local and for all experts.  BT: tokens that are
    routed at once.  BR: rows of tables that are loaded at once.  SENT, SPREAD: rows of tokens that are.
    """
    me, n, program, programs = dev.my_pe(ctx), dev.n_pes(ctx), tl.program_id(0), tl.num_programs(0)
    turn = tl.load(turns + program) + 1
    tables, away = tables + (turn & 1) * n * parts * local, (turn & 1) * n * room
    their_experts, their_weights, slots = their_experts + away * TOP, their_weights + away * TOP, slots + away * hidden
    for part in range(program, parts, programs):
        route(
            ctx, tables + (me * parts + part) * local, their_experts + me * room * TOP, their_weights + me * room * TOP,
            faults, part * each, tl.minimum(part * each + each, room), tokens, local, indices, weights, hits,
            TOP, PT, PN, BT,
        )  # fmt: skip
        tell(ctx, flags + me * pitch + part, turn * STEPS + 1, n + 1)
    if program < pushers:
        push_parts(
            ctx, flags + me * pitch, turn * STEPS + 2, slots + tl.cast(me * room, tl.int64) * hidden, tokens, hidden, local,
            parts, each, chunk, pushers, first > 0, x, indices, TOP, PT, W, SENT,
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
                n, room, parts, part, tables, their_experts, their_weights, places, factors, totals, begin, end, local,
                capacity, TOP, PT, PL, BT, BR,
            )  # fmt: skip
            arch.join(ctx)  # other threads have written the places
            spread(x, places + me * room * TOP, rows, begin, end, hidden, TOP, W, SPREAD)
            for start in range(begin, end, chunk):
                spread_arrivals(
                    ctx, flags + part, pitch, turn * STEPS + 2 + (start - begin) // chunk, slots, places, rows, start,
                    tl.minimum(start + chunk, end), room, hidden, TOP, W, SPREAD,
                )  # fmt: skip
    arch.join(ctx)  # all threads have loaded the turn
    tl.store(turns + program, turn)


@jit
def tell(ctx, flag, value, end):
    """Set a flag on the PEs from the next one to the one ``end`` - 1 behind: all peers, or this PE too."""
    for i in range(1, end):
        dev.signal_set(ctx, flag, value, (dev.my_pe(ctx) + i) % dev.n_pes(ctx))


@jit
def route(
    ctx, table, their_experts, their_weights, faults, begin, end, tokens, local, indices, weights, hits,
    TOP: tl.constexpr, PT: tl.constexpr, PN: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Tell all PEs how many rows each of their experts gets of a part, and which experts and weights its tokens have."""
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    lane, number = tl.arange(0, PT), tl.arange(0, PN)
    found = tl.zeros([PN], tl.int32)
    for start in range(begin, end, BT):
        token = start + tl.arange(0, BT)
        places = token[:, None] * TOP + lane[None, :]
        room = (token < end)[:, None] & (lane < TOP)[None, :]
        held = room & (token < tokens)[:, None]
        listed = tl.load(indices + places, mask=held, other=-1)
        given = tl.load(weights + places, mask=held, other=0.0)
        known = (listed >= 0) & (listed < local * n)
        wrong = tl.max(tl.max(tl.where(known | (listed == -1), 0, token[:, None] + 1), axis=1), axis=0)
        if wrong > 0:
            tl.store(faults + 3, local * n)
            tl.store(faults + 2, wrong)
        expert = tl.where(known, listed, -1).to(tl.int32)
        found += tl.sum((tl.reshape(expert, [BT * PT])[:, None] == number[None, :]).to(tl.int32), axis=0)
        for i in range(1, n + 1):
            pe = (me + i) % n
            its = expert - pe * local
            there = (its >= 0) & (its < local)
            dev.store(ctx, their_experts + places, tl.where(there, its, -1), pe, room)
            dev.store(ctx, their_weights + places, given, pe, room)
            tl.store(hits + token * n + pe, tl.max(there.to(tl.int32), axis=1), mask=token < end)
    owner = tl.minimum(number // local, n - 1)
    dev.store(ctx, table + number % local, found, owner, number < local * n)


@jit
def push_parts(
    ctx, flags, step, mine, tokens, hidden, local, parts, each, chunk, pushers, tells, x, indices,
    TOP: tl.constexpr, PT: tl.constexpr, W: tl.constexpr, SENT: tl.constexpr,
):  # fmt: skip
    """Send rows of this program's parts to ``mine``. tells: the flag of a part becomes ``step`` + its chunk behind each."""
    for start in range(0, each, chunk):
        for part in range(tl.program_id(0), parts, pushers):
            last = tl.minimum(tl.minimum(start + chunk, each) + part * each, tokens)
            push(ctx, mine, part * each + start, last, hidden, local, x, indices, TOP, PT, W, SENT)
            if tells:
                tell(ctx, flags + part, step + start // chunk, dev.n_pes(ctx))


@jit
def push(
    ctx, mine, begin, end, hidden, local, x, indices, TOP: tl.constexpr, PT: tl.constexpr, W: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Send rows of x to ``mine``, this PE's slots, on each peer that has an expert for them."""
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    item, lane = tl.arange(0, PT), tl.arange(0, W)
    for token in range(begin, end, AT_ONCE):
        values = ()
        for j in tl.static_range(AT_ONCE):  # all before the first store, which no load may pass
            inside = (lane < hidden) & (token + j < end)
            values = values + (tl.load(x + tl.cast(token + j, tl.int64) * hidden + lane, mask=inside),)
        for j in tl.static_range(AT_ONCE):
            held = (item < TOP) & (token + j < end)
            listed = tl.load(indices + (token + j) * TOP + item, mask=held, other=-1).to(tl.int32)
            for i in range(1, n):
                pe = (me + i) % n
                some = tl.max(((listed >= pe * local) & (listed < pe * local + local)).to(tl.int32), axis=0)
                there = mine + tl.cast(token + j, tl.int64) * hidden + lane
                dev.store(ctx, there, values[j], pe, (lane < hidden) & (some > 0))


@jit
def sum_rows(table, begin, middle, end, local, PL: tl.constexpr, BR: tl.constexpr):
    """Return the sums of rows of ``local`` numbers: of those below ``middle``, and of all."""
    number, early, every = tl.arange(0, PL), tl.zeros([PL], tl.int32), tl.zeros([PL], tl.int32)
    for start in range(begin, end, BR):
        row = start + tl.arange(0, BR)
        inside = (row < end)[:, None] & (number < local)[None, :]
        found = tl.load(table + row[:, None] * local + number[None, :], mask=inside, other=0)
        early += tl.sum(tl.where((row < middle)[:, None], found, 0), axis=0)
        every += tl.sum(found, axis=0)
    return early, every


@jit
def divide(totals, local, capacity, strict, counts, offsets, faults, PL: tl.constexpr):
    """Store where the rows of each expert begin and how many there are, as far as there is room for them."""
    number, every = tl.arange(0, PL), tl.sum(totals, axis=0)
    ends = tl.cumsum(totals, axis=0)
    begins, ends = tl.minimum(ends - totals, capacity), tl.minimum(ends, capacity)
    tl.store(counts + number, ends - begins, mask=number < local)
    tl.store(offsets + number, begins, mask=number < local)
    tl.store(offsets + local, tl.minimum(every, capacity))
    if (every > capacity) & (strict > 0):
        tl.store(faults + 1, capacity)
        tl.store(faults, every)


@jit
def assign_all(
    n, room, parts, part, tables, their_experts, their_weights, places, factors, totals, begin, end, local, capacity,
    TOP: tl.constexpr, PT: tl.constexpr, PL: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Give the rows of a part of each PE their places: behind those of other experts, PEs before, and parts before."""
    before = tl.cumsum(totals, axis=0) - totals
    for pe in range(n):
        early, every = sum_rows(tables, pe * parts, pe * parts + part, pe * parts + parts, local, PL, BR)
        at = pe * room * TOP
        assign(
            their_experts + at, their_weights + at, places + at, factors + at, before + early, begin, end,
            capacity, TOP, PT, PL, BT,
        )  # fmt: skip
        before += every


@jit
def assign(
    experts, weights, places, factors, base, begin, end, capacity,
    TOP: tl.constexpr, PT: tl.constexpr, PL: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Give each expert of each token of a part its row, in the order of tokens from ``base`` on, and the row its weight."""
    lane, number = tl.arange(0, PT), tl.arange(0, PL)
    for start in range(begin, end, BT):
        token = start + tl.arange(0, BT)
        inside = (token < end)[:, None] & (lane < TOP)[None, :]
        at = token[:, None] * TOP
        expert = tl.load(experts + at + lane[None, :], mask=inside, other=-1)
        given = tl.load(weights + at + lane[None, :], mask=inside, other=0.0)
        chosen = (tl.reshape(expert, [BT * PT])[:, None] == number[None, :]).to(tl.int32)
        before = tl.cumsum(chosen, axis=0) - chosen + base[None, :]
        place = tl.reshape(tl.sum(chosen * before, axis=1), [BT, PT])
        place = tl.where(expert < 0, -1, tl.where(place < capacity, place, -2))
        base += tl.sum(chosen, axis=0)
        key = tl.where(expert < 0, PL, expert)  # behind all experts
        sooner = (key[:, None, :] < key[:, :, None]) | (
            (key[:, None, :] == key[:, :, None]) & (lane[None, None, :] < lane[None, :, None])
        )
        rank = tl.sum(sooner.to(tl.int32), axis=2)
        tl.store(places + at + rank, place, mask=inside)
        tl.store(factors + at + rank, given, mask=inside)


@jit
def spread(source, places, rows, begin, end, hidden, TOP: tl.constexpr, W: tl.constexpr, AT_ONCE: tl.constexpr):
    """Copy rows of ``source`` to each of their places."""
    lane = tl.arange(0, W)
    for token in range(begin, end, AT_ONCE):
        values, wanted = (), ()
        for j in tl.static_range(AT_ONCE):
            for k in tl.static_range(TOP):
                wanted = wanted + (tl.load(places + (token + j) * TOP + k, mask=token + j < end, other=-1),)
        for j in tl.static_range(AT_ONCE):
            inside = (lane < hidden) & (wanted[j * TOP] >= 0)
            values = values + (tl.load(source + tl.cast(token + j, tl.int64) * hidden + lane, mask=inside),)
        for j in tl.static_range(AT_ONCE):
            for k in tl.static_range(TOP):
                place = wanted[j * TOP + k]
                inside = (lane < hidden) & (place >= 0)
                tl.store(rows + tl.cast(place, tl.int64) * hidden + lane, values[j], mask=inside)


@jit
def spread_arrivals(
    ctx, flags, pitch, step, slots, places, rows, begin, end, room, hidden,
    TOP: tl.constexpr, W: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """Wait for a chunk of each peer in turn, and spread it."""
    for i in range(1, dev.n_pes(ctx)):
        pe = (dev.my_pe(ctx) + i) % dev.n_pes(ctx)
        dev.signal_wait_until(ctx, flags + pe * pitch, dev.CMP_GE, step)
        theirs, wanted = slots + tl.cast(pe * room, tl.int64) * hidden, places + pe * room * TOP
        spread(theirs, wanted, rows, begin, end, hidden, TOP, W, SPREAD)


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


@triton.jit
def note(found, faults):
    """Keep the faults that a call has found. found, faults: pairs of a fault, 0 for none, and what is wanted."""
    pair = tl.arange(0, 2)
    fault = tl.load(found + 2 * pair)
    tl.store(faults + 2 * pair + 1, tl.load(found + 2 * pair + 1), mask=fault > 0)
    tl.store(faults + 2 * pair, fault, mask=fault > 0)
