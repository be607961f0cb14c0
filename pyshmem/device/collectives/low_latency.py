"""all_reduce of small tiles by words that are their own flags, without fences, like NCCL's LL protocol.

One store of 8 bytes carries 4 bytes of data and a mark of 4 bytes. A thread waits only for the words that it combines.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.packing import (
    as_lanes,
    both,
    combine,
    element_in,
    from_lanes,
    lanes_share,
    to_lanes,
    words_in,
)
from pyshmem.device.collectives.scratch import (
    SMALLEST,
    WORDS,
    after,
    begin,
    end,
    end_of_turns,
    even_piece,
    odd,
    piece_of,
    within,
)
from pyshmem.device.context import my_pe, n_pes


@jit
def reduce_words(ctx, slot, flat, element: tl.constexpr, op: tl.constexpr):
    """Execute all_reduce of a block of one dimension, the bits of ``element``, in a small team.

    A block that fits in a piece needs no loop, so that addresses are computed while the elements are loaded.
    """
    count: tl.constexpr = flat.shape[0]
    turn = begin(slot)  # first, so that its load overlaps with those of the elements
    shared: tl.constexpr = lanes_share(count, element, arch.in_gluon())
    lanes = to_lanes(flat, shared)
    lane = arch.along(lanes, 0)
    words: tl.constexpr = words_in(element)
    if 8 * words * lanes.shape[0] <= SMALLEST or 8 * words * lanes.shape[0] <= ctx.piece:
        total = reduce_lanes(ctx, slot, turn, lanes, lane * words, lane >= 0, element, shared, op)
    else:
        total = reduce_in_turns(ctx, slot, turn, lanes, element, shared, op)
    return from_lanes(total, flat.dtype, count, shared)


@jit
def reduce_in_turns(ctx, slot, turn, lanes, element: tl.constexpr, shared: tl.constexpr, op: tl.constexpr):
    """Reduce as many lanes per turn as a piece holds."""
    words: tl.constexpr = words_in(element)
    lane = arch.along(lanes, 0)
    room = ctx.piece // (8 * words)
    total = lanes
    for first in range(0, end_of_turns(ctx, lanes.shape[0]), room):
        places, inside = (lane - first) * words, within(lane, first, room)
        summed = reduce_lanes(ctx, slot, turn, lanes, places, inside, element, shared, op)
        total = tl.where(inside, summed, total)
        turn += 1
    return total


@jit
def reduce_lanes(ctx, slot, turn, lanes, places, inside, element: tl.constexpr, shared: tl.constexpr, op: tl.constexpr):
    """Execute one turn: combine the lanes inside."""
    send_lanes(ctx, slot, turn, lanes, places, inside, words_in(element))
    summed = combine_lanes(ctx, slot, turn, places, inside, element, shared, op)
    end(ctx, slot, turn)
    return summed


@jit
def send_lanes(ctx, slot, turn, lanes, places, inside, words: tl.constexpr):
    mine, later = even_piece(ctx, slot, WORDS, my_pe(ctx)), odd(ctx, turn)
    pe = my_pe(ctx)
    for step in tl.static_range(ctx.members):  # unrolled, so that the stores are consecutive
        pe = after(ctx, pe)
        there, used = transport.piece_on(ctx, mine, pe), inside & (n_pes(ctx) > step)
        transport.store_words(ctx, there, places, later, lanes.to(tl.int32), turn, used)
        if words == 2:
            transport.store_words(ctx, there, places + 1, later, (lanes >> 32).to(tl.int32), turn, used)


@jit
def combine_lanes(ctx, slot, turn, places, inside, element: tl.constexpr, shared: tl.constexpr, op: tl.constexpr):
    """Combine the lanes of all members in the order of PEs."""
    first = piece_of(ctx, slot, WORDS, turn, 0)
    found = arch.await_words(ctx, "all_reduce", first, places, turn, inside, ctx.members)
    if words_in(element) == 2:
        more = arch.await_words(ctx, "all_reduce", first, places + 1, turn, inside, ctx.members)
        total = whole(found[0], more[0]).to(element, bitcast=True)
        for member in tl.static_range(1, ctx.members):
            value = whole(found[member], more[member]).to(element, bitcast=True)
            total = tl.where(n_pes(ctx) > member, combine(op, total, value), total)
        return as_lanes(total, element)
    elif shared == 2:
        return both(combine_one(ctx, found, element, 0, op), combine_one(ctx, found, element, 1, op))
    else:
        return combine_one(ctx, found, element, 0, op)


@jit
def combine_one(ctx, found, element: tl.constexpr, place: tl.constexpr, op: tl.constexpr):
    """Combine one element of each lane."""
    total = element_in(found[0], element, place)
    for member in tl.static_range(1, ctx.members):
        value = element_in(found[member], element, place)
        total = tl.where(n_pes(ctx) > member, combine(op, total, value), total)
    return as_lanes(total, element)


@jit
def whole(low, high):
    """Join two words to a number of 64 bits."""
    return (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)
