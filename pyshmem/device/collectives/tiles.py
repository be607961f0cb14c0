"""Collectives on tiles: values in a program's registers, combined or exchanged with those of the same program on other PEs.

Program p of a grid meets program p of the team's other PEs, so all programs may call at once, one after the other as often
as they like, with no barrier between. What one turn cannot hold takes several: ctx.piece bytes of each PE, which
PYSHMEM_SCRATCH and device_context(scratch=) set.

tile: a block of numbers, or a scalar, of one shape and dtype on every PE.
Order: every PE calls in the same order. No other memory is ordered: fence and quiet do that.
Errors: tile, op; a grid of more programs than there are slots; a wait over PYSHMEM_WAIT_TIMEOUT.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.arch.rules import count_of
from pyshmem.device.collectives.low_latency import reduce_words
from pyshmem.device.collectives.packing import combine, summed_in
from pyshmem.device.collectives.scratch import BULK, after, begin, end, exchange, piece_of, slot_of, within
from pyshmem.device.context import my_pe, n_pes
from pyshmem.device.transport import pointer_to, together

WORDS_BYTES = tl.constexpr(4096)  # of a tile, up to which words that are their own flags are faster
WORDS_MEMBERS = tl.constexpr(8)  # of a team, for the same: a thread polls a word of each at once
ONE_SHOT_BYTES = tl.constexpr(16384)  # of a tile, up to which all is sent to all; above each PE sums a part


@jit
def all_reduce(ctx, tile, op: tl.constexpr):
    """The tiles of all PEs, combined element by element: the same bits on every PE.

    op: "sum", "prod", "min", "max", for integers also "and", "or", "xor"; half types are combined in float32, in the order
    of PEs.  Returns: a tile like ``tile``.  Order, errors: this module's.
    Spec: 9.9 SHMEM_SUM_REDUCE and its kin, of registers.
    """
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


@jit
def reduce_scatter(ctx, tile, op: tl.constexpr):
    """Row my_pe of all PEs' tiles, combined element by element.

    tile: ctx.members rows, of which row j goes to PE j and those from n_pes on to nobody.  op: as in all_reduce.
    Returns: a tile of a row's shape.  Order, errors: this module's.  Spec: none; MPI's Reduce_scatter_block.
    """
    arch.check_tile(ctx, "reduce_scatter", "tile", tile, ctx.members)
    arch.check_reduced("reduce_scatter", op, tile)
    return row_shaped(in_turns(ctx, "reduce_scatter", in_rows(ctx, tile), op), tile)


@jit
def all_gather(ctx, tile):
    """The tiles of all PEs, one behind the other.

    Returns: ctx.members rows of tile's shape, row j of PE j; zeros from n_pes on.
    Order, errors: this module's.  Spec: 9.9 SHMEM_FCOLLECT, of registers.
    """
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "all_gather", "tile", tile)
    rows = in_turns(ctx, "all_gather", flatten(tile), None)
    return tl.reshape(rows, with_rows(ctx.members, tile)).to(tile.dtype, bitcast=True)


@jit
def all_to_all(ctx, tile):
    """Row j goes to PE j, and row j of what returns is from PE j.

    tile: ctx.members rows; those from n_pes on go nowhere and return as zeros.  Returns: a tile like ``tile``.
    Order, errors: this module's.  Spec: 9.9 SHMEM_ALLTOALL, of registers.
    """
    arch.check_tile(ctx, "all_to_all", "tile", tile, ctx.members)
    rows = in_turns(ctx, "all_to_all", in_rows(ctx, tile), None)
    return tl.reshape(rows, tile.shape).to(tile.dtype, bitcast=True)


# ---- how they go: one exchange a turn, or for all_reduce of large tiles two ----


@jit
def in_turns(ctx, routine: tl.constexpr, values, op: tl.constexpr):
    """One row goes to every member; of ctx.members rows row j goes to member j. What comes, combined, or all rows of it.

    op: None for the rows.
    """
    slot = slot_of(ctx, routine)
    width: tl.constexpr = values.shape[-1]
    lane = tl.arange(0, width)
    room = piece_elements(ctx, values.dtype)
    found = nothing_of(ctx, width, values.dtype, op)
    turn = begin(slot)
    for first in range(0, width, room):
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
    """Zeros, as in_turns returns values before they are rounded."""
    if op is None:
        return tl.zeros([ctx.members, width], element)
    else:
        return tl.zeros([width], summed_in(element))


@jit
def two_shot(ctx, slot, flat, op: tl.constexpr):
    """Everybody combines its part of all tiles and sends it to all: two exchanges a turn, of a part each."""
    width: tl.constexpr = flat.shape[0]
    lane = tl.arange(0, width)
    part = tl.minimum(piece_elements(ctx, flat.dtype), aligned_share(width, n_pes(ctx)))
    part = tl.multiple_of(part, together(flat.dtype))
    result = tl.zeros([width], flat.dtype)
    turn = begin(slot)
    for first in range(0, width, part * n_pes(ctx)):
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
    """All pieces, a row each; zeros where there is none."""
    pe = tl.arange(0, ctx.members)
    start = pointer_to(piece_of(ctx, slot, BULK, turn, 0), element)
    pointers = start + (pe * piece_elements(ctx, element))[:, None] + places[None, :]
    return tl.load(pointers, mask=inside[None, :] & (pe < n_pes(ctx))[:, None], other=0)


@jit
def combined(ctx, slot, turn, places, inside, element: tl.constexpr, op: tl.constexpr):
    """All pieces, combined in the order of PEs, of the type they are combined in."""
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
    """What moves: floats of 8 bits, which Triton makes of no other number, as their bits."""
    if values.dtype.is_fp8():
        return values.to(tl.int8, bitcast=True)
    else:
        return values


@jit
def flatten(tile):
    """A block of one dimension, of what moves."""
    values = bits_to_move(tile)
    if is_block(tile):
        return tl.reshape(values, [count_of(tile)])
    else:
        return tl.full([1], 0, values.dtype) + values


@jit
def in_rows(ctx, tile):
    """A row for each PE, of what moves."""
    return tl.reshape(bits_to_move(tile), [ctx.members, count_of(tile) // ctx.members])


@jit
def shaped(flat, tile):
    """In the shape and dtype of ``tile``, of its bits."""
    if is_block(tile):
        return tl.reshape(flat, tile.shape).to(tile.dtype, bitcast=True)
    else:
        return alone(flat).to(tile.dtype, bitcast=True)


@jit
def alone(flat):
    """The number in a block of one. Triton's max is of a wider dtype where there are few bits."""
    return tl.max(flat, axis=0).to(flat.dtype)


@jit
def row_shaped(flat, tile):
    """In the shape of a row of ``tile``."""
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
    """An equal part of so many elements, rounded up to what 16 threads move at once."""
    return (
        (members * 16 + count - 1) // (members * 16) * 16
    )  # a constant first would make a constant of it, interpreted
