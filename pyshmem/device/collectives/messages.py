"""Tiles that go one way: messages between two PEs, and broadcasts. Program p talks with program p of the other PE.

A sender is at most two pieces ahead of who reads, so calls may follow each other with no barrier between, and a message of
more than two pieces (ctx.piece bytes each) waits for its receiver.

Errors: tile; pe out of range; a grid of more programs than there are slots; a wait over PYSHMEM_WAIT_TIMEOUT.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.arrays import broadcast_array
from pyshmem.device.collectives.scratch import (
    CAST_HERE,
    CAST_READ,
    CAST_TAKEN,
    CASTS,
    HERE,
    MESSAGES,
    READ,
    SENT,
    TAKEN,
    after,
    count_of,
    piece_of,
    slot_of,
    within,
    words_of,
)
from pyshmem.device.collectives.tiles import flatten, load_at, piece_elements, shaped
from pyshmem.device.context import my_pe, n_pes


@jit
def send(ctx, tile, pe):
    """Send a tile to ``pe``, whose same program calls recv. Messages to one PE arrive in the order of sends.

    tile: a block of numbers or a scalar, of the shape and dtype that recv gives.  pe: a scalar.
    Order: none of other memory.  Errors: this module's.  Spec: none; MPI's Send.
    """
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "send", "tile", tile)
    arch.check_pe(ctx, "send", "pe", pe)
    slot = slot_of(ctx, "send")
    flat = flatten(tile)
    room = piece_elements(ctx, flat.dtype)
    for first in range(0, flat.shape[0], room):
        send_piece(ctx, "send", slot, flat, first, pe)


@jit
def recv(ctx, like, pe):
    """The tile that the same program of ``pe`` sends next.

    like: a tile of its shape and dtype, of any value.  pe: a scalar.  Returns: a tile like ``like``.
    Order: none of other memory.  Errors: this module's.  Spec: none; MPI's Recv.
    """
    like = arch.in_registers(like)
    arch.check_tile(ctx, "recv", "like", like)
    arch.check_pe(ctx, "recv", "pe", pe)
    slot = slot_of(ctx, "recv")
    found = flatten(like)
    room = piece_elements(ctx, found.dtype)
    for first in range(0, found.shape[0], room):
        found = recv_piece(ctx, "recv", slot, found, first, pe)
    return shaped(found, like)


@jit
def sendrecv(ctx, tile, to, of):
    """send to ``to`` and recv from ``of`` in one, piece by piece, so that a ring of PEs may call it with tiles of any size.

    tile: send's.  to, of: scalars; who is sent to calls it or recv with a tile of the same shape and dtype.
    Returns: a tile like ``tile``.
    Order: none of other memory.  Errors: this module's.  Spec: none; MPI's Sendrecv.
    """
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "sendrecv", "tile", tile)
    arch.check_pe(ctx, "sendrecv", "to", to)
    arch.check_pe(ctx, "sendrecv", "of", of)
    slot = slot_of(ctx, "sendrecv")
    flat = flatten(tile)
    found = flat
    room = piece_elements(ctx, flat.dtype)
    for first in range(0, flat.shape[0], room):
        send_piece(ctx, "sendrecv", slot, flat, first, to)
        found = recv_piece(ctx, "sendrecv", slot, found, first, of)
    return shaped(found, tile)


@jit
def broadcast(ctx, dest, source, nelems=None, PE_root=None):
    """OpenSHMEM's broadcast of arrays, or with three arguments that of a tile: broadcast(ctx, tile, root).

    dest, source: symmetric pointers to one dtype; ``source[:nelems]`` of PE_root goes to ``dest`` on all, the root too;
    called by one program of each PE.  Or dest: a tile, of one shape and dtype on all; source: the root, a scalar.
    nelems, PE_root: ints, the same on all PEs.  Returns: for a tile, the root's.
    Order: for arrays that of sum_reduce; for tiles none of other memory.
    Errors: those of fcollect, or of all_reduce.  Spec: 9.9 SHMEM_BROADCAST.
    """
    if nelems is None:
        return broadcast_tile(ctx, dest, source)
    else:
        broadcast_array(ctx, dest, source, nelems, PE_root)


@jit
def broadcast_tile(ctx, tile, root):
    """broadcast, of values in registers."""
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "broadcast", "tile", tile)
    arch.check_pe(ctx, "broadcast", "root", root)
    slot = slot_of(ctx, "broadcast")
    found = flatten(tile)
    room = piece_elements(ctx, found.dtype)
    for first in range(0, found.shape[0], room):
        if my_pe(ctx) == root:
            cast_piece(ctx, slot, found, first)
        else:
            found = take_piece(ctx, slot, found, first, root)
    return shaped(found, tile)


@jit
def send_piece(ctx, routine: tl.constexpr, slot, flat, first, pe):
    sent = (words_of(ctx, slot, SENT) + 8 * pe).to(tl.pointer_type(tl.int64))
    turn = tl.load(sent) + 1
    arch.await_member(ctx, routine, words_of(ctx, slot, READ), turn - 2, pe)
    put_piece(ctx, transport.piece_on(ctx, piece_of(ctx, slot, MESSAGES, turn, my_pe(ctx)), pe), flat, first)
    tl.store(sent, turn)
    arch.join(ctx)
    transport.tell_member(ctx, words_of(ctx, slot, HERE), turn, pe)


@jit
def recv_piece(ctx, routine: tl.constexpr, slot, found, first, pe):
    """``found`` with the piece from ``first`` on in its place."""
    taken = (words_of(ctx, slot, TAKEN) + 8 * pe).to(tl.pointer_type(tl.int64))
    turn = tl.load(taken) + 1
    arch.await_member(ctx, routine, words_of(ctx, slot, HERE), turn, pe)
    whole = take(ctx, piece_of(ctx, slot, MESSAGES, turn, pe), found, first)
    tl.store(taken, turn)
    arch.join(ctx)
    transport.tell_member(ctx, words_of(ctx, slot, READ), turn, pe)
    return whole


@jit
def cast_piece(ctx, slot, flat, first):
    turn = tl.load(count_of(slot, 1)) + 1
    arch.await_all(ctx, "broadcast", words_of(ctx, slot, CAST_READ), turn - 2)
    mine = piece_of(ctx, slot, CASTS, turn, my_pe(ctx))
    pe = my_pe(ctx)
    for _ in range(1, n_pes(ctx)):
        pe = after(ctx, pe)
        put_piece(ctx, transport.piece_on(ctx, mine, pe), flat, first)
    tl.store(count_of(slot, 1), turn)
    own = (words_of(ctx, slot, CAST_READ) + 8 * my_pe(ctx)).to(tl.pointer_type(tl.int64))
    tl.store(own, turn)  # the root reads nothing, so it has read all
    arch.join(ctx)
    transport.tell_all(ctx, words_of(ctx, slot, CAST_HERE), turn)


@jit
def take_piece(ctx, slot, found, first, root):
    taken = (words_of(ctx, slot, CAST_TAKEN) + 8 * root).to(tl.pointer_type(tl.int64))
    turn = tl.load(taken) + 1
    arch.await_member(ctx, "broadcast", words_of(ctx, slot, CAST_HERE), turn, root)
    whole = take(ctx, piece_of(ctx, slot, CASTS, turn, root), found, first)
    tl.store(taken, turn)
    arch.join(ctx)
    transport.tell_member(ctx, words_of(ctx, slot, CAST_READ), turn, root)
    return whole


@jit
def put_piece(ctx, piece, flat, first):
    lane = tl.arange(0, flat.shape[0])
    transport.store_piece(ctx, piece, flat, lane - first, within(lane, first, piece_elements(ctx, flat.dtype)))


@jit
def take(ctx, address, found, first):
    lane = tl.arange(0, found.shape[0])
    inside = within(lane, first, piece_elements(ctx, found.dtype))
    return tl.where(inside, load_at(address, lane - first, inside, found.dtype), found)
