"""How kernels find the place of each expert's rows: numbers of rows for parts of the tokens, which all PEs add.

Of each token and PE, ``places`` has its rows' numbers there in the order of experts, then -1; -2 is a row without room.
"""

from __future__ import annotations

import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import jit


@jit
def route(ctx, memory, operands, part, tokens, room, parts, each, local, FORM: tl.constexpr):
    """Tell all PEs how many rows each of their experts gets of a part, and which experts and weights its tokens have."""
    TOP: tl.constexpr = FORM.TOP
    PT: tl.constexpr = FORM.PT
    PN: tl.constexpr = FORM.PN
    BT: tl.constexpr = FORM.BT
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    span = dev.trace_begin(ctx, "route")
    table, mine = memory.tables + (me * parts + part) * local, me * room * TOP
    begin, end = part * each, tl.minimum(part * each + each, room)
    lane, number = tl.arange(0, PT), tl.arange(0, PN)
    rows = tl.zeros([PN], tl.int32)
    for start in range(begin, end, BT):
        token = start + tl.arange(0, BT)
        places = token[:, None] * TOP + lane[None, :]
        inside = (token < end)[:, None] & (lane < TOP)[None, :]
        held = inside & (token < tokens)[:, None]
        listed = tl.load(operands.indices + places, mask=held, other=-1)
        given = tl.load(operands.weights + places, mask=held, other=0.0)
        expert = known(listed, local * n)
        record_others(listed, token[:, None], local * n, memory.faults)
        rows += tl.sum((tl.reshape(expert, [BT * PT])[:, None] == number[None, :]).to(tl.int32), axis=0)
        for i in range(1, n + 1):
            pe = (me + i) % n
            its = expert - pe * local
            there = (its >= 0) & (its < local)
            dev.store(ctx, memory.experts + mine + places, tl.where(there, its, -1), pe, inside)
            dev.store(ctx, memory.weights + mine + places, given, pe, inside)
            tl.store(operands.hits + token * n + pe, tl.max(there.to(tl.int32), axis=1), mask=token < end)
    owner = tl.minimum(number // local, n - 1)
    dev.store(ctx, table + number % local, rows, owner, number < local * n)
    dev.trace_end(ctx, span)


@jit
def known(listed, experts):
    """Return the experts that entries name, -1 for numbers of none."""
    return tl.where((listed >= 0) & (listed < experts), listed, -1).to(tl.int32)


@jit
def record_others(listed, token, experts, faults):
    """Record the last ``token`` of which an entry is no expert's number, and not -1."""
    wrong = tl.max(tl.ravel(tl.where((listed < -1) | (listed >= experts), token + 1, 0)), axis=0)
    if wrong > 0:
        tl.store(faults + 3, experts)
        tl.store(faults + 2, wrong)


@jit
def sum_rows(table, begin, middle, end, local, PL: tl.constexpr, BR: tl.constexpr):
    """Return the sums of rows of ``local`` numbers: of those below ``middle``, and of all."""
    number, early, every = tl.arange(0, PL), tl.zeros([PL], tl.int32), tl.zeros([PL], tl.int32)
    for start in range(begin, end, BR):
        row = start + tl.arange(0, BR)
        inside = (row < end)[:, None] & (number < local)[None, :]
        counts = tl.load(table + row[:, None] * local + number[None, :], mask=inside, other=0)
        early += tl.sum(tl.where((row < middle)[:, None], counts, 0), axis=0)
        every += tl.sum(counts, axis=0)
    return early, every


@jit
def divide(totals, local, capacity, strict, counts, offsets, faults, PL: tl.constexpr):
    """Keep where the rows of each expert begin and how many there are, by the ``totals`` of all."""
    every = tl.sum(totals, axis=0)
    ends = tl.cumsum(totals, axis=0)
    keep_divisions(ends - totals, ends, every, local, capacity, strict, counts, offsets, faults, PL)


@jit
def keep_divisions(begins, ends, every, local, capacity, strict, counts, offsets, faults, PL: tl.constexpr):
    """Store where the rows of each expert begin and how many there are, as far as there is room for ``every`` row."""
    number = tl.arange(0, PL)
    begins, ends = tl.minimum(begins, capacity), tl.minimum(ends, capacity)
    tl.store(counts + number, ends - begins, mask=number < local)
    tl.store(offsets + number, begins, mask=number < local)
    tl.store(offsets + local, tl.minimum(every, capacity))
    if (every > capacity) & (strict > 0):
        tl.store(faults + 1, capacity)
        tl.store(faults, every)


@jit
def assign_all(ctx, memory, operands, totals, part, begin, end, room, parts, local, capacity, FORM: tl.constexpr):
    """Give the rows of a part of each PE their places: behind those of experts, PEs and parts before."""
    span = dev.trace_begin(ctx, "places")
    before = tl.cumsum(totals, axis=0) - totals
    for pe in range(dev.n_pes(ctx)):
        early, every = sum_rows(
            memory.tables, pe * parts, pe * parts + part, pe * parts + parts, local, FORM.PL, FORM.BR
        )
        at = pe * room * FORM.TOP
        assign(
            memory.experts + at, memory.weights + at, operands.places + at, operands.factors + at, before + early,
            begin, end, capacity, FORM,
        )  # fmt: skip
        before += every
    dev.trace_end(ctx, span)
    arch.join(ctx)  # other threads read the places


@jit
def assign(experts, weights, places, factors, base, begin, end, capacity, FORM: tl.constexpr):
    """Give each expert of each token of a part its row, in the order of tokens from ``base`` on, and the row its weight."""
    TOP: tl.constexpr = FORM.TOP
    PT: tl.constexpr = FORM.PT
    BT: tl.constexpr = FORM.BT
    lane, number = tl.arange(0, PT), tl.arange(0, FORM.PL)
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
        keep_places(places + at, factors + at, expert, place, given, inside)


@jit
def keep_places(places, factors, expert, place, given, inside):
    """Store the places and weights of tokens in the order of their experts, those without one, of a number below 0, last.

    expert, place, given: a row for each token, from whose start in ``places`` and ``factors`` on they are stored.
    """
    item = tl.arange(0, expert.shape[1])
    key = tl.where(expert < 0, 0x7FFFFFFF, expert)
    sooner = (key[:, None, :] < key[:, :, None]) | (
        (key[:, None, :] == key[:, :, None]) & (item[None, None, :] < item[None, :, None])
    )
    rank = tl.sum(sooner.to(tl.int32), axis=2)
    tl.store(places + rank, place, mask=inside)
    tl.store(factors + rank, given, mask=inside)
