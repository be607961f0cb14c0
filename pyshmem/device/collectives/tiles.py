"""Collectives on tiles: values in registers, combined or exchanged between the programs of one number on all PEs.

A tile that does not fit in a piece of scratch takes several turns: ctx.piece bytes of each PE, which PYSHMEM_SCRATCH and
device_context(scratch=) set.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.arch.rules import count_of
from pyshmem.device.collectives.low_latency import reduce_words
from pyshmem.device.collectives.packing import combine, moved_as, summed_in
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
Errors: ArgumentError for a wrong tile{op_too}; WaitTimeoutError, raised by the next host call, for a grid of more
    programs than the scratch has slots for, or a wait longer than PYSHMEM_WAIT_TIMEOUT.
Spec: {spec}.
"""
ANY = "a block of numbers, or a scalar, of one shape and dtype on all PEs."
ROWS = "a block of numbers with ctx.members rows; rows from n_pes on go nowhere{rest}."
OPERATOR = 'op: "sum", "prod", "min", "max", "and", "or" or "xor". Half types are combined in float32, in PE order.\n'


@documented(
    TILE,
    what=("Combine the tiles of all PEs element by element. Returns: the same bits on every PE, like ``tile``."),
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
        total = reduce_words(ctx, slot_of(ctx, "all_reduce"), flat, op)
    elif nbytes <= ONE_SHOT_BYTES or ctx.members <= 2:
        total = in_turns(ctx, "all_reduce", flat, op)
    else:
        total = two_shot(ctx, slot_of(ctx, "all_reduce"), flat, op)
    return shaped(total, tile)


@documented(
    TILE,
    what="Combine the tiles of all PEs element by element. Returns: row my_pe of the result.",
    tile=ROWS.format(rest=""),
    operands=OPERATOR,
    op_too=" or operator",
    spec="none; MPI's Reduce_scatter_block",
)
@jit
def reduce_scatter(ctx, tile, op: tl.constexpr):
    arch.check_tile(ctx, "reduce_scatter", "tile", tile, ctx.members)
    arch.check_reduced("reduce_scatter", op, tile)
    return row_shaped(in_turns(ctx, "reduce_scatter", in_rows(ctx, tile), op), tile)


@documented(
    TILE,
    what="Gather the tiles of all PEs. Returns: ctx.members rows, row j from PE j, zeros from n_pes on.",
    tile=ANY,
    operands="",
    op_too="",
    spec="OpenSHMEM 1.6, 9.9 SHMEM_FCOLLECT, on registers",
)
@jit
def all_gather(ctx, tile):
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "all_gather", "tile", tile)
    rows = in_turns(ctx, "all_gather", flatten(tile), None)
    return tl.reshape(rows, with_rows(ctx.members, tile)).to(tile.dtype, bitcast=True)


@documented(
    TILE,
    what="Send row j to PE j. Returns: a tile like ``tile``, with row j from PE j.",
    tile=ROWS.format(rest=" and return as zeros"),
    operands="",
    op_too="",
    spec="OpenSHMEM 1.6, 9.9 SHMEM_ALLTOALL, on registers",
)
@jit
def all_to_all(ctx, tile):
    arch.check_tile(ctx, "all_to_all", "tile", tile, ctx.members)
    rows = in_turns(ctx, "all_to_all", in_rows(ctx, tile), None)
    return tl.reshape(rows, tile.shape).to(tile.dtype, bitcast=True)


# ---- algorithms: one exchange per turn, or two for all_reduce of large tiles ----


@jit
def in_turns(ctx, routine: tl.constexpr, values, op: tl.constexpr):
    """Send one row to every member, or row j of ctx.members rows to member j. Returns: the received rows.

    op: the operator that combines the received rows; None returns all of them.
    """
    slot = slot_of(ctx, routine)
    width: tl.constexpr = values.shape[-1]
    lane = tl.arange(0, width)
    room = piece_elements(ctx, values.dtype)
    found = nothing_of(ctx, width, values.dtype, op)
    turn = begin(slot)
    for first in range(0, end_of_turns(ctx, width), room):
        places, inside = lane - first, within(lane, first, room)
        if has_one_dimension(values):
            send_all(ctx, slot, turn, values, places, inside)
        else:
            transport.store_rows(ctx, piece_of(ctx, slot, BULK, turn, my_pe(ctx)), values, places, inside)
        exchange(ctx, routine, slot, turn)
        if op is None:
            found = tl.where(inside[None, :], read_rows(ctx, slot, turn, places, inside, values.dtype), found)
        else:
            found = tl.where(inside, combined(ctx, slot, turn, places, inside, values.dtype, op), found)
        end(ctx, slot, turn)
        turn += 1
    return found if op is None else arch.rounded(found, values.dtype)


@jit
def nothing_of(ctx, width: tl.constexpr, element: tl.constexpr, op: tl.constexpr):
    """Return zeros of the type that in_turns computes in, before rounding."""
    if op is None:
        return tl.zeros([ctx.members, width], element)
    else:
        return tl.zeros([width], summed_in(element))


@jit
def two_shot(ctx, slot, flat, op: tl.constexpr):
    """Combine this PE's part of all tiles and send the result to all PEs: two exchanges of a part per turn."""
    width: tl.constexpr = flat.shape[0]
    lane = tl.arange(0, width)
    part = tl.minimum(piece_elements(ctx, flat.dtype), aligned_share(width, n_pes(ctx)))
    part = tl.multiple_of(part, together(flat.dtype))
    result = tl.zeros([width], flat.dtype)
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
        summed = arch.rounded(combined(ctx, slot, turn, lane - first_own, own, flat.dtype, op), flat.dtype)
        end(ctx, slot, turn)
        send_all(ctx, slot, turn + 1, summed, lane - first_own, own)
        exchange(ctx, "all_reduce", slot, turn + 1)
        for pe in range(n_pes(ctx)):
            start = first + pe * part
            inside = within(lane, start, part)
            piece = load_at(piece_of(ctx, slot, BULK, turn + 1, pe), lane - start, inside, flat.dtype)
            result = tl.where(inside, piece, result)
        end(ctx, slot, turn + 1)
        turn += 2
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
def read_rows(ctx, slot, turn, places, inside, element: tl.constexpr):
    """Load all pieces, one per row. Rows without a member are zeros."""
    pe = tl.arange(0, ctx.members)
    start = pointer_to(piece_of(ctx, slot, BULK, turn, 0), element)
    pointers = start + (pe * piece_elements(ctx, element))[:, None] + places[None, :]
    return tl.load(pointers, mask=inside[None, :] & (pe < n_pes(ctx))[:, None], other=0)


@jit
def combined(ctx, slot, turn, places, inside, element: tl.constexpr, op: tl.constexpr):
    """Combine all pieces in the order of PEs. Returns: the result before rounding."""
    wide: tl.constexpr = summed_in(element)
    total = load_at(piece_of(ctx, slot, BULK, turn, 0), places, inside, element).to(wide)
    for pe in range(1, n_pes(ctx)):
        total = combine(op, total, load_at(piece_of(ctx, slot, BULK, turn, pe), places, inside, element).to(wide))
    return total


@jit
def load_at(address, places, inside, element: tl.constexpr):
    return tl.load(pointer_to(address, element) + places, mask=inside, other=0)


@jit
def piece_elements(ctx, element: tl.constexpr):
    return tl.multiple_of(ctx.piece // (element.primitive_bitwidth // 8), together(element))


# ---- shapes ----


@jit
def bits_to_move(values):
    """Return the values in the type in which they are sent."""
    return values.to(moved_as(values.dtype), bitcast=True)


@jit
def flatten(tile):
    """Return the result of bits_to_move as a block of one dimension."""
    values = bits_to_move(tile)
    if is_block(tile):
        return tl.reshape(values, [count_of(tile)])
    else:
        return tl.full([1], 0, values.dtype) + values


@jit
def in_rows(ctx, tile):
    """Return the result of bits_to_move with one row per PE."""
    return tl.reshape(bits_to_move(tile), [ctx.members, count_of(tile) // ctx.members])


@jit
def shaped(flat, tile):
    """Return ``flat`` in the shape and dtype of ``tile``."""
    if is_block(tile):
        return tl.reshape(flat, tile.shape).to(tile.dtype, bitcast=True)
    else:
        return alone(flat).to(tile.dtype, bitcast=True)


@jit
def alone(flat):
    """Return the element of a block of one. Triton's max widens small dtypes."""
    return tl.max(flat, axis=0).to(flat.dtype)


@jit
def row_shaped(flat, tile):
    """Return ``flat`` in the shape of a row of ``tile``."""
    if has_one_dimension(tile):
        return alone(flat)
    else:
        return tl.reshape(flat, row_shape(tile))


@triton.constexpr_function
def is_block(tile: tl.tensor) -> bool:
    return tile.type.is_block()


@triton.constexpr_function
def has_one_dimension(tile: tl.tensor) -> bool:
    return len(tile.shape) == 1


@triton.constexpr_function
def bytes_of(flat: tl.tensor) -> int:
    return int(flat.shape[0]) * flat.dtype.primitive_bitwidth // 8


@triton.constexpr_function
def row_shape(tile: tl.tensor) -> list[int]:
    return [int(extent) for extent in tile.shape[1:]]


@triton.constexpr_function
def with_rows(rows: int, tile: tl.tensor) -> list[int]:
    return [rows, *(int(extent) for extent in tile.shape)]


@jit
def aligned_share(count: tl.constexpr, members):
    """Return an equal part of ``count`` elements, rounded up to a multiple of 16."""
    # a constant first would make a constant of it, interpreted
    return (members * 16 + count - 1) // (members * 16) * 16
