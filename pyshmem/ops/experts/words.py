"""The schedule "words" of moe_dispatch, for few tokens: lists of experts go to all PEs as words that are their own flags.

Nothing is counted before rows are sent, and nothing is exchanged after the lists: each program reads the lists of all PEs,
which are short, and counts how many rows come before those of its own tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.ops.experts.kernels import ANY, STEPS
from pyshmem.ops.experts.places import keep_divisions, keep_places, known, record_others
from pyshmem.ops.experts.rows import load_row, rows_from, send_row, spread, spread_arrivals, tell
from pyshmem.ops.marked_words import begin_store, begin_wait

NOWHERE = tl.constexpr(0x7FFFFFFF)  # behind all rows


class Memory(NamedTuple):
    """words: (2, PEs, 2, room, TOP), by the PE that has sent them: experts, then weights. ctx.piece is the bytes of a PE's.

    flags: (PEs, pitch), of programs.  Others: as in kernels.Memory.
    """

    words: Any
    flags: Any
    slots: Any
    slot_scales: Any
    epochs: Any
    faults: Any


class Form(NamedTuple):
    """What dispatch_words is compiled for. PARTS times WIDTH lanes hold the experts of all tokens of a PE.

    Others: as in kernels.Form.
    """

    TOP: int
    PT: int
    PL: int
    WIDTH: int
    PARTS: int
    W: int
    S: int


@triton.jit(do_not_specialize=(*ANY, "capacity", "strict"))
def dispatch_words(
    ctx, memory, tokens, room, pitch, shape, capacity, strict, operands, FORM: tl.constexpr, EARLY: tl.constexpr
):
    """Send each row once to each PE that has experts for it, and write a row for each of them there, in order of experts."""
    TOP: tl.constexpr = FORM.TOP
    S: tl.constexpr = FORM.S
    if EARLY:
        gpu.follow()
    me, n, program, programs = dev.my_pe(ctx), dev.n_pes(ctx), tl.program_id(0), tl.num_programs(0)
    hidden, local, flags, places = shape.hidden, shape.local, memory.flags, operands.places
    epoch = tl.load(memory.epochs + program) + 1
    lists = memory.words.to(tl.int64) + (epoch & 1) * n * ctx.piece
    arrived = rows_from((memory.slots, memory.slot_scales), (epoch & 1) * n * room, hidden, S)
    source, target = (operands.x, operands.scales), (operands.rows, operands.row_scales)
    mine = rows_from(arrived, me * room, hidden, S)
    for part in range(program, FORM.PARTS, programs):
        send_lists(ctx, lists, epoch, memory.faults, part * FORM.WIDTH, tokens, room, local, operands, FORM)
    for token in range(program, tokens, programs):
        parcel = dev.trace_begin(ctx, "parcel")
        push_token(ctx, mine, token, source, operands, shape, FORM)
        dev.trace_end(ctx, parcel)
    keys = keys_of(ctx, lists, epoch, room * TOP, local, FORM.WIDTH, FORM.PARTS)
    span = dev.trace_begin(ctx, "places")
    for token in range(program, room, programs):
        place_token(ctx, lists, epoch, keys, token, room, local, capacity, operands, FORM)
    dev.trace_end(ctx, span)
    arch.join(ctx)  # other threads have written the places
    for token in range(program, tokens, programs):
        spread(ctx, source, places + me * room * TOP, target, token, token + 1, hidden, FORM, 1)
    tell(ctx, flags + me * pitch + program, epoch * STEPS + 2, n)  # the rows have arrived while others were spread
    if program == 0:
        divide_keys(ctx, keys, room * TOP, local, capacity, strict, operands, memory.faults, FORM.PL)
    for token in range(program, room, programs):
        step = epoch * STEPS + 2
        spread_arrivals(ctx, flags + program, pitch, step, arrived, operands, token, token + 1, room, hidden, FORM, 1)
    arch.join(ctx)  # all threads have loaded the epoch
    tl.store(memory.epochs + program, epoch)


@jit
def send_lists(ctx, lists, epoch, faults, first, tokens, room, local, operands, FORM: tl.constexpr):
    """Send entries from ``first`` on of the experts and weights of this PE's tokens to all PEs: -1 behind the last token."""
    TOP: tl.constexpr = FORM.TOP
    me, n, at = dev.my_pe(ctx), dev.n_pes(ctx), first + tl.arange(0, FORM.WIDTH)
    token, sent = at // TOP, at < room * TOP
    listed = tl.load(operands.indices + at, mask=token < tokens, other=-1)
    given = tl.load(operands.weights + at, mask=token < tokens, other=0.0).to(tl.int32, bitcast=True)
    expert = known(listed, local * n)
    for i in range(1, n + 1):
        event = begin_store(ctx, lists + me * ctx.piece + first * 8, epoch, (me + i) % n, expert, 2)
        there = transport.piece_on(ctx, lists + me * ctx.piece, (me + i) % n)
        transport.store_words(ctx, there, at, 0, expert, epoch, sent)
        transport.store_words(ctx, there, room * TOP + at, 0, given, epoch, sent)
        arch.end_event(ctx, event)
    record_others(listed, token, local * n, faults)


@jit
def push_token(ctx, mine, token, source, operands, shape, FORM: tl.constexpr):
    """Send a row to ``mine``, this PE's slots, on each peer that has an expert for it, and record who has."""
    TOP: tl.constexpr = FORM.TOP
    W: tl.constexpr = FORM.W
    S: tl.constexpr = FORM.S
    me, n, item, local = dev.my_pe(ctx), dev.n_pes(ctx), tl.arange(0, FORM.PT), shape.local
    listed = tl.load(operands.indices + token * TOP + item, mask=item < TOP, other=-1).to(tl.int32)
    row = load_row(source, token, shape.hidden, True, W, S)
    for i in range(1, n + 1):
        pe = (me + i) % n
        some = tl.max(((listed >= pe * local) & (listed < pe * local + local)).to(tl.int32), axis=0)
        tl.store(operands.hits + token * n + pe, some)
        send_row(ctx, mine, token, row, pe, shape.hidden, (some > 0) & (pe != me), W, S)


@jit
def keys_of(ctx, lists, epoch, listed, local, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Return keys of all rows here, in tuples of blocks: they have the order of the rows. NOWHERE stands for none."""
    lane = tl.arange(0, WIDTH)
    event = begin_wait(ctx, lists, dev.n_pes(ctx) * ctx.piece, epoch)
    found = arch.await_parts(ctx, "all_gather", lists, lane, listed - 1, epoch, ctx.members, PARTS)
    arch.end_event(ctx, event)
    keys = ()
    for part in tl.static_range(PARTS):
        for pe in tl.static_range(ctx.members):
            at = part * WIDTH + lane
            key = key_of(ctx, found[part][pe], pe, at, listed, local)
            keys = keys + (tl.where((at < listed) & (pe < dev.n_pes(ctx)), key, NOWHERE),)
    return keys


@jit
def key_of(ctx, expert, pe, at, listed, local):
    """Return the key of the row for entry ``at`` of a PE's lists: its expert here, then where it is listed."""
    its = expert - dev.my_pe(ctx) * local
    return tl.where((its >= 0) & (its < local), (its * dev.n_pes(ctx) + pe) * listed + at, NOWHERE)


@jit
def before(keys, limits):
    """Return how many of the keys are below each of a block of limits."""
    found = (keys[0][None, :] < limits[:, None]).to(tl.int32)  # a thread has few keys, and all limits
    for i in tl.static_range(1, len(keys)):
        found += (keys[i][None, :] < limits[:, None]).to(tl.int32)
    return tl.sum(found, axis=1)


@jit
def divide_keys(ctx, keys, listed, local, capacity, strict, operands, faults, PL: tl.constexpr):
    """Keep where the rows of each expert begin and how many there are, by the keys of all."""
    number, span = tl.arange(0, PL), dev.n_pes(ctx) * listed
    begins = before(keys, number * span)
    ends = before(keys, number * span + span)
    every = tl.max(tl.where(number < local, ends, 0), axis=0)
    keep_divisions(begins, ends, every, local, capacity, strict, operands.counts, operands.offsets, faults, PL)


@jit
def place_token(ctx, lists, epoch, keys, token, room, local, capacity, operands, FORM: tl.constexpr):
    """Give the rows of this token of each PE their places and weights."""
    TOP: tl.constexpr = FORM.TOP
    PT: tl.constexpr = FORM.PT
    members: tl.constexpr = ctx.members
    lane, listed = tl.arange(0, 2 * members * PT), room * TOP  # of each entry its expert, then its weight
    item, sender = lane // 2 % PT, lane // (2 * PT)
    word = sender * (ctx.piece // 8) + lane % 2 * listed + token * TOP + item
    inside = (item < TOP) & (sender < dev.n_pes(ctx))
    found = arch.await_words(ctx, "all_gather", lists, word, epoch, inside, 1)[0]
    expert, given = tl.split(tl.reshape(found, [members, PT, 2]))
    pe, item = tl.arange(0, members)[:, None], tl.arange(0, PT)[None, :]
    held = (item < TOP) & (pe < dev.n_pes(ctx))
    key = tl.where(held, key_of(ctx, expert, pe, token * TOP + item, listed, local), NOWHERE)
    place = tl.reshape(before(keys, tl.ravel(key)), [members, PT])
    place = tl.where(key == NOWHERE, -1, tl.where(place < capacity, place, -2))
    order = tl.where(key == NOWHERE, -1, key)  # as that of experts
    first = (pe * room + token) * TOP
    keep_places(
        operands.places + first, operands.factors + first, order, place, given.to(tl.float32, bitcast=True), held
    )
