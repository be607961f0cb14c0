"""all_reduce of small tiles: words that are their own flags, so that one way to the peers and no fence is all it takes.

The idea is NCCL's LL protocol: 4 bytes of data and 4 of a mark travel as one store of 8 bytes.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import DeviceContext, my_pe
from pyshmem.device.scratch import WORDS, after, begin, end, piece_of, within
from pyshmem.device.words import combine, from_words, summed_in, to_words


@jit
def reduce_words(ctx: DeviceContext, slot: tl.tensor, flat: tl.tensor, op: tl.constexpr) -> tl.tensor:
    """all_reduce of a block of one dimension, in a team of few."""
    count: tl.constexpr = flat.shape[0]
    words = to_words(flat)
    lane, element = tl.arange(0, words.shape[0]), tl.arange(0, count)
    of_element = element * words.shape[0] // count  # the word of each, the first of two
    room = ctx.piece // 8
    total = tl.zeros([count], summed_in(flat.dtype))
    for first in range(0, words.shape[0], room):
        turn = begin(slot)
        inside = within(lane, first, room)
        send_words(ctx, slot, turn, words, lane - first, inside)
        summed = combine_words(ctx, slot, turn, lane - first, inside, flat, op)
        total = tl.where(within(of_element, first, room), summed, total)
        end(ctx, slot, turn)
    return arch.rounded(total, flat.dtype)


@jit
def send_words(
    ctx: DeviceContext, slot: tl.tensor, turn: tl.tensor, words: tl.tensor, places: tl.tensor, inside: tl.tensor
) -> None:
    mine = piece_of(ctx, slot, WORDS, turn, my_pe(ctx))
    pe = my_pe(ctx)
    for _ in range(ctx.n_pes):
        pe = after(ctx, pe)
        arch.store_words(ctx, mine + arch.distance(ctx, pe), places, words, turn, inside)


@jit
def combine_words(
    ctx: DeviceContext,
    slot: tl.tensor,
    turn: tl.tensor,
    places: tl.tensor,
    inside: tl.tensor,
    flat: tl.tensor,
    op: tl.constexpr,
) -> tl.tensor:
    """What all members' words make, combined in the order of PEs, of the type they are combined in."""
    count: tl.constexpr = flat.shape[0]
    wide: tl.constexpr = summed_in(flat.dtype)
    first = piece_of(ctx, slot, WORDS, turn, 0)
    found = arch.await_words(ctx, "all_reduce", first, places, turn, inside, ctx.members)
    total = from_words(found[0], flat.dtype, count).to(wide)
    for member in tl.static_range(1, ctx.members):
        value = from_words(found[member], flat.dtype, count).to(wide)
        if member < ctx.n_pes:
            total = combine(op, total, value)
    return total
