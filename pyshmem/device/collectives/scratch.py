"""Scratch slots for kernel collectives. Program p exchanges data only with program p on the other PEs.

Every program has a slot on every PE of the team. Calls by one program of each PE use a further slot without areas. A slot
begins with a cache line of the owner's counters: of exchanges, of broadcasts by this PE, of barrier_all_grid. ARRAYS arrays
with a word per member follow, then the areas, each with two pieces per member. Counters and flags start at 0 and only grow.
Pieces are double-buffered by the parity of the epoch: no PE leaves epoch e before all PEs have entered it, so that the
buffers of epoch e-2 are free.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.arch.fields import decoded, encoded
from pyshmem.device.context import n_pes

MOST_PROGRAMS = 256
LEAST_PIECE = 256  # bytes, for which a larger team has fewer slots
PIECES = 8  # of each member: four areas, two turns
HEAD, WORDS_A_MEMBER = 64, 14  # bytes of a slot before its arrays of a word for each member, and how many those are
# Arrays of a word a member. Of an exchange: how many this member has written its part of, here.
FLAGS = tl.constexpr(0)
# Of messages: own counts of those to and from a member; by that member: how many from it are here, how many to it are read.
SENT, TAKEN, HERE, READ = (tl.constexpr(place) for place in range(1, 5))
# Of broadcasts from a member: by it, how many are here; own count; by others, how many of this PE's they have read.
CAST_HERE, CAST_TAKEN, CAST_READ = (tl.constexpr(place) for place in range(5, 8))
# Of broadcasts straight into arrays, from a member: by it, how many are here; own count.
ARRAY_HERE, ARRAY_TAKEN = tl.constexpr(8), tl.constexpr(9)
# Of collect: by a member, how much it brings.
LENGTHS = tl.constexpr(10)
# Of alltoallv, by a member: how many rows it sends is in LENGTHS, and here is the first of them in its source.
STARTS = tl.constexpr(11)
# 12 and 13 are of collectives by copy engines, see pyshmem.host.streams.copies.
# Areas: of exchanges behind flags, of words that are their own flags, of messages, of broadcasts.
BULK, WORDS, MESSAGES, CASTS = (tl.constexpr(kind) for kind in range(4))
LINE, ARRAYS, SMALLEST = tl.constexpr(HEAD), tl.constexpr(WORDS_A_MEMBER), tl.constexpr(LEAST_PIECE)


def head_bytes(members: int) -> int:
    """The bytes of a slot before its areas, in whole cache lines: for the host."""
    return -(-(HEAD + 8 * WORDS_A_MEMBER * members) // 64) * 64


def divide(scratch: int, nbytes: int, members: int) -> dict[str, int]:
    """The device context's fields for ``nbytes`` of scratch at that address.

    Before the slots of ``programs`` is one without areas, for calls by one program; there may be no room even for it.
    """
    head = head_bytes(members)
    room = nbytes - head
    programs = min(MOST_PROGRAMS, room // (head + PIECES * members * LEAST_PIECE)) if room >= 0 else -1
    slot = max(room, 0) // max(programs, 1) // 64 * 64
    piece = max(slot - head, 0) // (PIECES * members) // 16 * 16
    return {"scratch": scratch, "slot": slot, "slots": encoded(programs + 1), "piece": piece}


def programs_of(context) -> int:
    """How many programs of a grid have a slot in a device context's scratch: for the host."""
    return decoded(context.slots) - 1


@jit
def program():
    """Return the calling program's number in its grid."""
    return tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))


@jit
def programs():
    """Return the number of programs of the grid."""
    return tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)


@jit
def slot_of(ctx, routine: tl.constexpr):
    """Return the address of the calling program's slot. Errors: the grid has more programs than ctx has slots."""
    return slot_at(ctx, arch.check_slot(ctx, routine, program()))


@jit
def slot_at(ctx, number):
    """Return the address of a program's slot."""
    return tl.multiple_of(ctx.scratch + head(ctx) + number.to(tl.int64) * ctx.slot, 64)


@jit
def slot_of_one(ctx, routine: tl.constexpr):
    """Return the address of the slot for calls by one program. Errors: the team's scratch is too small for it."""
    arch.check_slot(ctx, routine, tl.cast(-1, tl.int32))
    return tl.multiple_of(ctx.scratch, 64) + tl.cast(0, tl.int64)


@jit
def head(ctx):
    """Return the bytes of a slot's counters and flags, in whole cache lines."""
    return (LINE + 8 * ARRAYS * n_pes(ctx) + 63) // 64 * 64


@jit
def enter(ctx, routine: tl.constexpr, grid: tl.constexpr, nelems):
    """Return (slot, first, count) for a call on arrays: the part of ``nelems`` elements that the calling program moves.

    grid: whether all programs of the grid call. Each has an equal part then, a multiple of 16, which keeps the alignment.
    """
    whole = tl.cast(nelems, tl.int64)
    if grid:
        each = (whole + 16 * programs() - 1) // (16 * programs()) * 16
        first = tl.minimum(each * program(), whole)
        return slot_of(ctx, routine), first, tl.minimum(each, whole - first)
    else:
        return slot_of_one(ctx, routine), tl.cast(0, tl.int64), whole


@jit
def end_of_turns(ctx, count):
    """Where a loop ends that moves ``count`` elements, a piece in each turn. Pieces of 0 bytes allow no turn.

    A team whose scratch is too small for one slot has such pieces. The loop's step is 0 then, and it would never end.
    check_slot has left the record of the error.
    """
    return tl.where(ctx.piece > 0, count, 0)


@jit
def words_of(ctx, slot, array: tl.constexpr):
    """Return the address of one of the arrays of words."""
    return slot + LINE + 8 * n_pes(ctx) * array


@jit
def piece_of(ctx, slot, kind: tl.constexpr, turn, member):
    """Return the address of ``member``'s piece of an area for turn ``turn``."""
    return tl.multiple_of(even_piece(ctx, slot, kind, member) + odd(ctx, turn), 16)


@jit
def even_piece(ctx, slot, kind: tl.constexpr, member):
    """Return the address of ``member``'s piece of an area for even turns."""
    return tl.multiple_of(slot + head(ctx) + (member + 2 * n_pes(ctx) * kind) * ctx.piece, 16)


@jit
def odd(ctx, turn):
    """Return the bytes from a piece for even turns to the piece for turn ``turn``."""
    # a select: a product would wait for the load of turn
    return tl.where((turn & 1) != 0, ctx.piece * n_pes(ctx), 0)


@jit
def after(ctx, pe):
    """Return the next member, cyclically. Loops over all members begin with it, so that no two PEs send to the same PE."""
    return tl.where(pe + 1 == n_pes(ctx), 0, pe + 1)


@jit
def within(lane, first, count):
    return (lane >= first) & (lane < first + count)


@jit
def count_of(slot, place: tl.constexpr):
    """Return a pointer to a counter: 0, exchanges; 1, broadcasts; 2 and 3, barrier_all_grid."""
    return (slot + 8 * place).to(tl.pointer_type(tl.int64))


@jit
def begin(slot):
    """Return the number of the exchange that begins."""
    return tl.load(count_of(slot, 0)) + 1


@jit
def exchange(ctx, routine: tl.constexpr, slot, turn):
    """Notify all members that this program has stored its data of turn ``turn``, and wait for theirs."""
    flags = words_of(ctx, slot, FLAGS)
    arch.join(ctx)
    transport.tell_all(ctx, flags, turn)
    arch.await_all(ctx, routine, flags, turn)


@jit
def end(ctx, slot, turn):
    """End turn ``turn`` after every thread has read its data. A barrier separates begin and end."""
    tl.store(count_of(slot, 0), turn)
    arch.join(ctx)
