"""Collectives on tiles: values in registers, combined or exchanged between the programs of one number on all PEs.

A tile that does not fit in a piece of scratch takes several turns: ctx.piece bytes of each PE, which PYSHMEM_SCRATCH and
device_context(scratch=) set.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.low_latency import reduce_words
from pyshmem.device.collectives.packing import combine, combined_as, identity_of, moved_as, summed_in
from pyshmem.device.collectives.scratch import (
    BULK,
    after,
    begin,
    end,
    end_of_turns,
    exchange,
    piece_of,
    slot_of,
    within,
)
from pyshmem.device.collectives.shapes import (
    alone,
    bits_to_move,
    bytes_of,
    extents,
    flatten,
    from_bits,
    gathered_shape,
    has_one_dimension,
    in_rows,
    is_block,
    joined,
    piece_shape,
    rounded_bits,
    shaped,
)
from pyshmem.device.context import my_pe, n_pes
from pyshmem.device.templates import documented
from pyshmem.device.transport import pointer_to, together

WORDS_BYTES = tl.constexpr(4096)  # of a tile, up to which words that are their own flags are faster
WORDS_MEMBERS = tl.constexpr(8)  # of a team, for the same: a thread polls a word of each at once
ONE_SHOT_BYTES = tl.constexpr(16384)  # of a tile, up to which all is sent to all; above each PE sums a part

TILE = """{what}

ctx: a device context. Program p of a grid exchanges data with program p on the team's other PEs.
tile: {tile}
{operands}Order: all PEs call in the same order, with no barrier between. It orders no other memory: fence and quiet do.
Errors: ArgumentError for a wrong tile{op_too}, or a team with PEs on other nodes; WaitTimeoutError, raised by the next
    host call, for more programs than the scratch has slots for, or a wait longer than PYSHMEM_WAIT_TIMEOUT.
Spec: {spec}.
"""
ANY = "a block of numbers, a mask, or a scalar, of one shape and dtype on all PEs."
CUT = """a block of numbers or a mask.  axis: a constexpr, the dimension that is cut into ctx.members pieces, or None for a
    first dimension of ctx.members rows. Piece j is for PE j; pieces from n_pes on go nowhere."""
OPERATOR = """op: "sum", "prod", "min", "max", "and", "or" or "xor"; the last three for masks. Floats of 8 and 16 bits are
    combined in float32, in PE order, and rounded once.
"""


@documented(
    TILE,
    "Combine the tiles of all PEs element by element. Returns: the same bits on every PE, like ``tile``.",
    tile=ANY,
    operands=OPERATOR,
    op_too=" or operator",
    spec="OpenSHMEM 1.6, 9.9 SHMEM_SUM_REDUCE and its kin, on registers",
)
@jit
def all_reduce(ctx, tile, op: tl.constexpr):
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "all_reduce", "tile", tile)
    arch.check_reduced("all_reduce", op, tile)
    flat = flatten(tile)
    nbytes: tl.constexpr = bytes_of(flat)
    if nbytes <= WORDS_BYTES and ctx.members <= WORDS_MEMBERS:
        event = arch.begin_meeting(ctx, "all_reduce", flat)
        total = reduce_words(ctx, slot_of(ctx, "all_reduce"), flat, combined_as(tile.dtype), op)
        arch.end_event(ctx, event)
    elif nbytes <= ONE_SHOT_BYTES or ctx.members <= 2:
        total = rounded_bits(combined_in_turns(ctx, "all_reduce", flat, flat, tile.dtype, op, n_pes(ctx)), tile.dtype)
    else:
        total = two_shot(ctx, slot_of(ctx, "all_reduce"), flat, tile.dtype, op)
    return shaped(total, tile)


@documented(
    TILE,
    """Combine the tiles of the PEs up to this one element by element; exclusive=True, a constexpr, leaves this one out.
Returns: a tile like ``tile``. PE 0 gets, if exclusive, the neutral element of ``op``: 0 for sum.""",
    tile=ANY,
    operands=OPERATOR,
    op_too=" or operator",
    spec="OpenSHMEM 1.6, 9.9 SHMEM_SUM_INSCAN and SHMEM_SUM_EXSCAN, on registers",
)
@jit
def scan(ctx, tile, op: tl.constexpr, exclusive: tl.constexpr = False):
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "scan", "tile", tile)
    arch.check_reduced("scan", op, tile)
    flat = flatten(tile)
    if exclusive:
        total = combined_in_turns(ctx, "scan", flat, flat, tile.dtype, op, my_pe(ctx))
        total = tl.where(my_pe(ctx) > 0, total, identity_of(op, summed_in(tile.dtype), tile.dtype))
    else:
        total = combined_in_turns(ctx, "scan", flat, flat, tile.dtype, op, my_pe(ctx) + 1)
    return shaped(rounded_bits(total, tile.dtype), tile)


@documented(
    TILE,
    "Combine the tiles of all PEs element by element. Returns: this PE's piece of the result; without axis, row my_pe.",
    tile=CUT,
    operands=OPERATOR,
    op_too=", axis or operator",
    spec="none; MPI's Reduce_scatter_block",
)
@jit
def reduce_scatter(ctx, tile, op: tl.constexpr, axis: tl.constexpr = None):
    check_cut(ctx, "reduce_scatter", tile, axis)
    arch.check_reduced("reduce_scatter", op, tile)
    result = arch.blank(piece_shape(tile, axis, ctx.members), tile.dtype, tile)
    rows = in_rows(bits_to_move(tile), 0 if axis is None else axis, ctx.members)
    total = combined_in_turns(ctx, "reduce_scatter", rows, flatten(result), tile.dtype, op, n_pes(ctx))
    bits = rounded_bits(total, tile.dtype)
    if has_one_dimension(tile) and axis is None:
        return from_bits(alone(bits), tile.dtype)
    else:
        return shaped(bits, result)


@documented(
    TILE,
    """Gather the tiles of all PEs. Returns: ctx.members pieces along ``axis``, or along a new first dimension, piece j
from PE j. Pieces from n_pes on are zeros.""",
    tile=ANY,
    operands="axis: a constexpr, a dimension of the tile, or None for a new one.\n",
    op_too=" or axis",
    spec="OpenSHMEM 1.6, 9.9 SHMEM_FCOLLECT, on registers",
)
@jit
def all_gather(ctx, tile, axis: tl.constexpr = None):
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "all_gather", "tile", tile)
    if axis is not None or (arch.in_gluon() and is_block(tile)):
        arch.check_axis("all_gather", tile, axis, 1)
    result = arch.blank(gathered_shape(tile, axis, ctx.members), moved_as(tile.dtype), tile)
    return moved_in_turns(ctx, "all_gather", flatten(tile), result, tile.dtype, 0 if axis is None else axis)


@documented(
    TILE,
    "Send piece j to PE j. Returns: a tile like ``tile``, piece j from PE j. Pieces from n_pes on are zeros.",
    tile=CUT,
    operands="",
    op_too=" or axis",
    spec="OpenSHMEM 1.6, 9.9 SHMEM_ALLTOALL, on registers",
)
@jit
def all_to_all(ctx, tile, axis: tl.constexpr = None):
    check_cut(ctx, "all_to_all", tile, axis)
    cut: tl.constexpr = 0 if axis is None else axis
    result = arch.blank(extents(tile), moved_as(tile.dtype), tile)
    rows = in_rows(bits_to_move(tile), cut, ctx.members)
    return moved_in_turns(ctx, "all_to_all", rows, result, tile.dtype, cut)


@jit
def check_cut(ctx, routine: tl.constexpr, tile, axis: tl.constexpr):
    """Check a tile whose dimension ``axis`` is cut into pieces, or which has a row for each member."""
    arch.check_context(ctx, routine)
    if axis is None:
        arch.check_tile(ctx, routine, "tile", tile, ctx.members)
    else:
        arch.check_tile(ctx, routine, "tile", tile)
        arch.check_axis(routine, tile, axis, ctx.members)


# ---- algorithms: one exchange per turn, or two for all_reduce of large tiles ----


@jit
def combined_in_turns(ctx, routine: tl.constexpr, values, like, element: tl.constexpr, op: tl.constexpr, stop):
    """Combine what the members before ``stop`` send to this PE. Returns: a block like the flat ``like``, not rounded.

    values: the bits of ``element``: of one dimension, for every member, or a row for each.
    """
    found = arch.blank([like.shape[0]], summed_in(element), like)
    return in_turns(ctx, routine, values, found, element, op, stop)


@jit
def moved_in_turns(ctx, routine: tl.constexpr, values, result, element: tl.constexpr, axis: tl.constexpr):
    """Fill ``result``, a block of zeros, along ``axis`` with what the members send to this PE."""
    rows = in_rows(result, axis, ctx.members)
    return from_bits(joined(in_turns(ctx, routine, values, rows, element, None, n_pes(ctx)), result, axis), element)


@jit
def in_turns(ctx, routine: tl.constexpr, values, found, element: tl.constexpr, op: tl.constexpr, stop):
    """Send ``values`` to every member, or row j to member j. Returns: ``found`` with what the members before ``stop`` sent.

    op: the operator that combines the received rows; None returns all of them.
    """
    event = arch.begin_meeting(ctx, routine, values)
    slot = slot_of(ctx, routine)
    room = piece_elements(ctx, values.dtype)
    turn = begin(slot)
    for first in range(0, end_of_turns(ctx, values.shape[-1]), room):
        if has_one_dimension(values):
            lane = arch.along(values, 0)
            send_all(ctx, slot, turn, values, lane - first, within(lane, first, room))
        else:
            pe, lane = arch.along(values, 0), arch.along(values, 1)
            mine = piece_of(ctx, slot, BULK, turn, my_pe(ctx))
            transport.store_rows(ctx, mine, values, pe, lane - first, within(lane, first, room))
        exchange(ctx, routine, slot, turn)
        if op is None:
            pe, lane = arch.along(found, 0), arch.along(found, 1)
            inside = within(lane, first, room)
            found = tl.where(inside, read_rows(ctx, slot, turn, pe, lane - first, inside, found.dtype), found)
        else:
            lane = arch.along(found, 0)
            inside = within(lane, first, room)
            found = tl.where(inside, combined(ctx, slot, turn, lane - first, inside, element, op, stop), found)
        end(ctx, slot, turn)
        turn += 1
    arch.end_event(ctx, event)
    return found


@jit
def two_shot(ctx, slot, flat, element: tl.constexpr, op: tl.constexpr):
    """Combine this PE's part of all tiles and send the result to all PEs: two exchanges of a part per turn."""
    event = arch.begin_meeting(ctx, "all_reduce", flat)
    width: tl.constexpr = flat.shape[0]
    lane = arch.along(flat, 0)
    part = tl.minimum(piece_elements(ctx, flat.dtype), aligned_share(width, n_pes(ctx)))
    part = tl.multiple_of(part, together(flat.dtype))
    result = arch.blank([width], flat.dtype, flat)
    turn = begin(slot)
    for first in range(0, end_of_turns(ctx, width), part * n_pes(ctx)):
        pe = my_pe(ctx)
        for _ in range(n_pes(ctx)):
            pe = after(ctx, pe)
            start = first + pe * part
            there = transport.piece_on(ctx, piece_of(ctx, slot, BULK, turn, my_pe(ctx)), pe)
            transport.store_piece(ctx, there, flat, lane - start, within(lane, start, part))
        exchange(ctx, "all_reduce", slot, turn)
        first_own = first + my_pe(ctx) * part
        own = within(lane, first_own, part)
        total = combined(ctx, slot, turn, lane - first_own, own, element, op, n_pes(ctx))
        end(ctx, slot, turn)
        send_all(ctx, slot, turn + 1, rounded_bits(total, element), lane - first_own, own)
        exchange(ctx, "all_reduce", slot, turn + 1)
        for pe in range(n_pes(ctx)):
            start = first + pe * part
            inside = within(lane, start, part)
            piece = load_at(piece_of(ctx, slot, BULK, turn + 1, pe), lane - start, inside, flat.dtype)
            result = tl.where(inside, piece, result)
        end(ctx, slot, turn + 1)
        turn += 2
    arch.end_event(ctx, event)
    return result


# ---- to and from pieces ----


@jit
def send_all(ctx, slot, turn, flat, places, inside):
    """Store to this PE's piece on every member, beginning with the next one."""
    mine = piece_of(ctx, slot, BULK, turn, my_pe(ctx))
    pe = my_pe(ctx)
    for _ in range(n_pes(ctx)):
        pe = after(ctx, pe)
        transport.store_piece(ctx, transport.piece_on(ctx, mine, pe), flat, places, inside)


@jit
def read_rows(ctx, slot, turn, pe, places, inside, kind: tl.constexpr):
    """Load all pieces, one per row. Rows without a member are zeros."""
    start = pointer_to(piece_of(ctx, slot, BULK, turn, 0), kind)
    pointers = start + pe * piece_elements(ctx, kind) + places
    return tl.load(pointers, mask=inside & (pe < n_pes(ctx)), other=0)


@jit
def combined(ctx, slot, turn, places, inside, element: tl.constexpr, op: tl.constexpr, stop):
    """Combine the pieces of the members before ``stop`` in their order. Returns: the result before rounding."""
    total = load_wide(ctx, slot, turn, 0, places, inside, element)
    for pe in range(1, stop):
        total = combine(op, total, load_wide(ctx, slot, turn, pe, places, inside, element))
    return total


@jit
def load_wide(ctx, slot, turn, pe, places, inside, element: tl.constexpr):
    """Load from ``pe``'s piece, in the type in which elements are combined."""
    bits = load_at(piece_of(ctx, slot, BULK, turn, pe), places, inside, moved_as(element))
    return bits.to(combined_as(element), bitcast=True).to(summed_in(element))


@jit
def load_at(address, places, inside, kind: tl.constexpr):
    return tl.load(pointer_to(address, kind) + places, mask=inside, other=0)


@jit
def piece_elements(ctx, element: tl.constexpr):
    return tl.multiple_of(ctx.piece // (element.primitive_bitwidth // 8), together(element))


@jit
def aligned_share(count: tl.constexpr, members):
    """Return an equal part of ``count`` elements, rounded up to a multiple of 16."""
    # a constant first would make a constant of it, interpreted
    return (members * 16 + count - 1) // (members * 16) * 16
