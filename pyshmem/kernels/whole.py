"""Reductions on a stream in which each PE combines all elements itself: with two PEs no link carries more than by halves.

reduce_read reads the peers' sources where they are. reduce_sent sends the source to the peers' scratch memory, where only
the arrival of the data costs a meeting, so that it is the faster one for smaller arrays; it may be in place.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device import transport
from pyshmem.device.collectives.packing import combine, summed_in
from pyshmem.device.collectives.reductions import fold_part
from pyshmem.device.collectives.scratch import BULK, after, begin, end, enter, exchange, piece_of, slot_of
from pyshmem.device.context import my_pe, n_pes
from pyshmem.kernels.on_stream import PLAIN, array_at


@triton.jit(do_not_specialize=PLAIN)
def reduce_read(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr):
    """target and source do not overlap."""
    slot, first, part = enter(ctx, "reduce_on_stream", True, count)
    turn = begin(slot)
    exchange(ctx, "reduce_on_stream", slot, turn)
    fold_part(ctx, OP, array_at(target, TYPE) + first, array_at(source, TYPE) + first, part, True)
    exchange(ctx, "reduce_on_stream", slot, turn + 1)
    end(ctx, slot, turn + 1)


@triton.jit(do_not_specialize=PLAIN)
def reduce_sent(
    ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program has ``BLOCK`` elements, which fit into a piece of its slot."""
    slot = slot_of(ctx, "reduce_on_stream")
    place = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    to, of, left = array_at(target, TYPE) + first, array_at(source, TYPE) + first, count - first
    whole = (left >= BLOCK) & (((target | source) & 15) == 0)
    turn = begin(slot)
    values = load_own(ctx, of, place, left, whole)
    mine = piece_of(ctx, slot, BULK, turn, my_pe(ctx))
    pe = my_pe(ctx)
    for _ in range(1, n_pes(ctx)):
        pe = after(ctx, pe)
        transport.store_piece(ctx, transport.piece_on(ctx, mine, pe), values, place, place >= 0)
    exchange(ctx, "reduce_on_stream", slot, turn)
    total = found(ctx, slot, turn, 0, place, values)
    for member in range(1, n_pes(ctx)):
        total = combine(OP, total, found(ctx, slot, turn, member, place, values))
    if whole:
        transport.store_block(ctx, to, place, total, my_pe(ctx), left, True)
    else:
        transport.store_block(ctx, to, place, total, my_pe(ctx), left, False)
    end(ctx, slot, turn)


@triton.jit
def load_own(ctx, source, place, left, whole):
    """The elements at ``place``, by 16 bytes if all are there and aligned, or zeros for those from ``left`` on."""
    if whole:
        values = transport.load_block(ctx, source, place, my_pe(ctx), left, True)
    else:
        values = transport.load_block(ctx, source, place, my_pe(ctx), left, False)
    return values


@triton.jit
def found(ctx, slot, turn, member, place, values):
    """What a member has sent, or this PE's own values, in the type in which they are combined."""
    piece = transport.pointer_to(piece_of(ctx, slot, BULK, turn, member), values.dtype)
    there = tl.load(piece + place, mask=(place >= 0) & (member != my_pe(ctx)), other=0)
    return tl.where(member == my_pe(ctx), values, there).to(summed_in(values.dtype))
