"""Messages between two PEs, and broadcasts. Program p exchanges tiles only with program p on the other PEs.

Calls need no barrier between them: a sender runs at most two pieces of scratch ahead of the receiver, and waits for its
acknowledgement before it reuses a piece.
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
    end_of_turns,
    piece_of,
    slot_of,
    within,
    words_of,
)
from pyshmem.device.collectives.shapes import flatten, shaped
from pyshmem.device.collectives.tiles import load_at, piece_elements
from pyshmem.device.context import my_pe, n_pes


@jit
def send(ctx, tile, pe):
    """Send a tile to ``pe``, where the same program calls recv. Messages to one PE arrive in the order of the sends.

    ctx: a device context.  pe: an int, counts in its team.
    tile: a block of numbers, a mask, or a scalar, of the shape and dtype that recv names. Two pieces may be ahead of recv.
    Order: it orders no other memory: fence and quiet do.
    Errors: ArgumentError for operands of a wrong type, OutOfRangeError for a PE in interpreted kernels;
        WaitTimeoutError, raised by the next host call, for too many programs or a wait longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: none; MPI's Send.
    """
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "send", "tile", tile)
    arch.check_pe(ctx, "send", "pe", pe)
    event = arch.begin_call(ctx, "send", pe, tile)
    slot = slot_of(ctx, "send")
    flat = flatten(tile)
    room = piece_elements(ctx, flat.dtype)
    for first in range(0, end_of_turns(ctx, flat.shape[0]), room):
        send_piece(ctx, "send", slot, flat, first, pe)
    arch.end_event(ctx, event)


@jit
def recv(ctx, like, pe):
    """Return the next tile that the same program of ``pe`` sends.

    ctx: a device context.  pe: an int, counts in its team.
    like: a tile of the shape and dtype sent, of any value.
    Order: it orders no other memory: fence and quiet do.
    Errors: ArgumentError for operands of a wrong type, OutOfRangeError for a PE in interpreted kernels;
        WaitTimeoutError, raised by the next host call, for too many programs or a wait longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: none; MPI's Recv.
    """
    like = arch.in_registers(like)
    arch.check_tile(ctx, "recv", "like", like)
    arch.check_pe(ctx, "recv", "pe", pe)
    event = arch.begin_call(ctx, "recv", pe, like)
    slot = slot_of(ctx, "recv")
    found = flatten(like)
    room = piece_elements(ctx, found.dtype)
    for first in range(0, end_of_turns(ctx, found.shape[0]), room):
        found = recv_piece(ctx, "recv", slot, found, first, pe)
    arch.end_event(ctx, event)
    return shaped(found, like)


@jit
def sendrecv(ctx, tile, to, of):
    """Send a tile to ``to`` and return the tile that ``of`` sends, piece by piece: a ring of PEs may call it with any size.

    ctx: a device context.  to, of: ints, count in its team; the PEs there call sendrecv, or recv and send.
    tile: a block of numbers, a mask, or a scalar, of the shape and dtype received.
    Order: it orders no other memory: fence and quiet do.
    Errors: ArgumentError for operands of a wrong type, OutOfRangeError for a PE in interpreted kernels;
        WaitTimeoutError, raised by the next host call, for too many programs or a wait longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: none; MPI's Sendrecv.
    """
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "sendrecv", "tile", tile)
    arch.check_pe(ctx, "sendrecv", "to", to)
    arch.check_pe(ctx, "sendrecv", "of", of)
    event = arch.begin_call(ctx, "sendrecv", to, tile)
    slot = slot_of(ctx, "sendrecv")
    flat = flatten(tile)
    found = flat
    room = piece_elements(ctx, flat.dtype)
    for first in range(0, end_of_turns(ctx, flat.shape[0]), room):
        send_piece(ctx, "sendrecv", slot, flat, first, to)
        found = recv_piece(ctx, "sendrecv", slot, found, first, of)
    arch.end_event(ctx, event)
    return shaped(found, tile)


@jit
def broadcast(ctx, dest, source, nelems=None, PE_root=None):
    """Copy an array from ``PE_root`` to every PE of the team; broadcast(ctx, tile, root) returns the root's tile.

    ctx: a device context. One program of each PE calls it with arrays; program p of every PE calls it with tiles.
    dest, source: symmetric pointers to one dtype, this PE's addresses; or a tile of one shape and dtype, and the root.
    nelems, PE_root: ints, the same on all PEs, for arrays.
    Order: all PEs call in the same order, with no barrier between. An array's dest must be ready before any PE calls.
    Errors: ArgumentError for operands of a wrong type, OutOfRangeError for a PE in interpreted kernels;
        WaitTimeoutError, raised by the next host call, for too many programs or a wait longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: OpenSHMEM 1.6, 9.9 SHMEM_BROADCAST.
    """
    if nelems is None:
        return broadcast_tile(ctx, dest, source)
    else:
        broadcast_array(ctx, dest, source, nelems, PE_root)


@jit
def broadcast_tile(ctx, tile, root):
    """broadcast of a tile."""
    tile = arch.in_registers(tile)
    arch.check_tile(ctx, "broadcast", "tile", tile)
    arch.check_pe(ctx, "broadcast", "root", root)
    event = arch.begin_meeting(ctx, "broadcast", tile)
    slot = slot_of(ctx, "broadcast")
    found = flatten(tile)
    room = piece_elements(ctx, found.dtype)
    for first in range(0, end_of_turns(ctx, found.shape[0]), room):
        if my_pe(ctx) == root:
            cast_piece(ctx, slot, found, first)
        else:
            found = take_piece(ctx, slot, found, first, root)
    arch.end_event(ctx, event)
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
    """Return ``found`` with the piece received in its place, from ``first`` on."""
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
    lane = arch.along(flat, 0)
    transport.store_piece(ctx, piece, flat, lane - first, within(lane, first, piece_elements(ctx, flat.dtype)))


@jit
def take(ctx, address, found, first):
    lane = arch.along(found, 0)
    inside = within(lane, first, piece_elements(ctx, found.dtype))
    return tl.where(inside, load_at(address, lane - first, inside, found.dtype), found)
