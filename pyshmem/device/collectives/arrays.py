"""Collectives in kernels that move symmetric arrays. Spec: OpenSHMEM 1.6, 9.9.

The plain form is called by one program of each PE, the form with _grid by all programs of a grid.
"""

from __future__ import annotations

from functools import partial

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.scratch import (
    ARRAY_HERE,
    ARRAY_TAKEN,
    LENGTHS,
    after,
    begin,
    end,
    enter,
    exchange,
    words_of,
)
from pyshmem.device.context import my_pe, n_pes
from pyshmem.device.templates import GRID, ONE, documented

ARRAY = """{what}

ctx: a device context.  dest, source: one pointer each, to one dtype, symmetric, given as this PE's addresses.{apart}
{operands}
Order: all PEs of the team call in the same order, with no barrier between. dest must be ready on all PEs before any of
    them calls; on return dest is complete here and source is free. {who}
Errors: DtypeError and ArgumentError for operands of a wrong type; in interpreted kernels NotSymmetricError and
    OutOfRangeError; {overdue}, or too many programs.
Spec: OpenSHMEM 1.6, 9.9 SHMEM_{NAME}.
"""
array = partial(documented, ARRAY, apart=" They do not overlap.", who=(ONE, GRID))


BROADCAST = array(
    "Copy ``source[:nelems]`` on ``PE_root`` to ``dest`` on every PE of the team, the root included.",
    apart="",
    operands="nelems, PE_root: ints, the same on all PEs. dest and source may be the same. The root may return early.",
)


@BROADCAST
@jit
def broadcast_array(ctx, dest, source, nelems, PE_root):
    cast_array(ctx, False, dest, source, nelems, PE_root)


@BROADCAST
@jit
def broadcast_grid(ctx, dest, source, nelems, PE_root):
    cast_array(ctx, True, dest, source, nelems, PE_root)


@jit
def cast_array(ctx, grid: tl.constexpr, dest, source, nelems, root):
    arch.check_here(ctx, "broadcast", "dest", dest, nelems)
    arch.check_one(ctx, "broadcast", "source", source, root, nelems)
    arch.expect("broadcast", "source", source, dest.dtype.element_ty)
    event = arch.begin_meeting(ctx, "broadcast", source, nelems)
    slot, first, count = enter(ctx, "broadcast", grid, nelems)
    here = words_of(ctx, slot, ARRAY_HERE)
    taken = words_of(ctx, slot, ARRAY_TAKEN).to(tl.pointer_type(tl.int64)) + root
    turn = tl.load(taken) + 1
    if my_pe(ctx) == root:
        push(ctx, dest + first, source + first, count)
        arch.join(ctx)
        transport.tell_all(ctx, here, turn)
    else:
        arch.await_member(ctx, "broadcast", here, turn, root)
    tl.store(taken, turn)
    arch.join(ctx)
    arch.end_event(ctx, event)


@jit
def cast_in_turns(ctx, dest, source, nelems, root, TURNS: tl.constexpr):
    """Broadcast by a grid: each turn the root sends each other member a share, which sends it to the others.

    What leaves the root is the array once, not once for each member. It is complete on a PE when all have met at the end.
    """
    event = arch.begin_meeting(ctx, "broadcast", source, nelems)
    slot, first, count = enter(ctx, "broadcast", True, nelems)
    others = n_pes(ctx) - 1
    share = (count + 16 * TURNS * others - 1) // (16 * TURNS * others) * 16
    here = words_of(ctx, slot, ARRAY_HERE)
    taken = words_of(ctx, slot, ARRAY_TAKEN).to(tl.pointer_type(tl.int64)) + root
    turn, told = begin(slot), tl.load(taken)
    mine = my_pe(ctx) - root - 1
    mine = tl.where(mine < 0, mine + n_pes(ctx), mine)
    for k in range(TURNS):
        start = first + share * others * k
        if my_pe(ctx) == root:
            pe = root
            for member in range(others):
                pe = after(ctx, pe)
                put_share(ctx, dest, source, start + share * member, share, first + count, pe)
            arch.join(ctx)
            transport.tell_all(ctx, here, told + k + 1)
            put_share(ctx, dest, source, start, share * others, first + count, root)
        else:
            arch.await_member(ctx, "broadcast", here, told + k + 1, root)
            pe = my_pe(ctx)
            for _ in range(others):
                pe = after(ctx, pe)
                if pe != root:
                    put_share(ctx, dest, dest, start + share * mine, share, first + count, pe)
    tl.store(taken, told + TURNS)
    exchange(ctx, "broadcast", slot, turn)
    end(ctx, slot, turn)
    arch.end_event(ctx, event)


@jit
def put_share(ctx, dest, source, start, share, last, pe):
    """Put the elements from ``start`` on, at most ``share`` and none from ``last`` on."""
    transport.put(ctx, dest + start, source + start, tl.maximum(tl.minimum(share, last - start), 0), pe)


@jit
def push(ctx, dest, source, count):
    """Copy from here to every PE, beginning with the next one."""
    pe = my_pe(ctx)
    for _ in range(n_pes(ctx)):
        pe = after(ctx, pe)
        transport.put(ctx, dest, source, count, pe)


FCOLLECT = array(
    "Concatenate ``source[:nelems]`` of all PEs, in the order of PEs, in ``dest`` on every PE.",
    operands="nelems: an int, the same on all PEs.",
)


@FCOLLECT
@jit
def fcollect(ctx, dest, source, nelems):
    gather(ctx, False, dest, source, nelems)


@FCOLLECT
@jit
def fcollect_grid(ctx, dest, source, nelems):
    gather(ctx, True, dest, source, nelems)


@jit
def gather(ctx, grid: tl.constexpr, dest, source, nelems):
    arch.check_context(ctx, "fcollect")
    check(ctx, "fcollect", dest, source, nelems * n_pes(ctx), nelems)
    event = arch.begin_meeting(ctx, "fcollect", source, nelems)
    slot, first, count = enter(ctx, "fcollect", grid, nelems)
    turn = begin(slot)
    push(ctx, dest + tl.cast(nelems, tl.int64) * my_pe(ctx) + first, source + first, count)
    exchange(ctx, "fcollect", slot, turn)
    end(ctx, slot, turn)
    arch.end_event(ctx, event)


COLLECT = array(
    "Concatenate ``source[:nelems]`` of all PEs, in the order of PEs, in ``dest`` on every PE.",
    operands="nelems: an int, each PE's own; it may be 0.",
)


@COLLECT
@jit
def collect(ctx, dest, source, nelems):
    gather_uneven(ctx, False, dest, source, nelems)


@COLLECT
@jit
def collect_grid(ctx, dest, source, nelems):
    gather_uneven(ctx, True, dest, source, nelems)


@jit
def gather_uneven(ctx, grid: tl.constexpr, dest, source, nelems):
    check(ctx, "collect", dest, source, nelems, nelems)
    event = arch.begin_meeting(ctx, "collect", source, nelems)
    slot, first, count = enter(ctx, "collect", grid, nelems)
    turn = begin(slot)
    pe = arch.arange(ctx.members)
    inside = pe < n_pes(ctx)
    lengths = words_of(ctx, slot, LENGTHS)
    transport.store_number(ctx, lengths + 8 * my_pe(ctx), tl.cast(nelems, tl.int64), pe, inside)
    exchange(ctx, "collect", slot, turn)
    counts = tl.load(lengths.to(tl.pointer_type(tl.int64)) + pe, mask=inside, other=0)
    total = tl.sum(counts, axis=0)
    if arch.fits(ctx, "collect", "dest", dest, total):
        before = tl.sum(tl.where(pe < my_pe(ctx), counts, 0), axis=0)
        push(ctx, dest + before + first, source + first, count)
    exchange(ctx, "collect", slot, turn + 1)
    end(ctx, slot, turn + 1)
    arch.end_event(ctx, event)
    # not before all have passed the exchange: a program that catches this finds the next call in order
    arch.check_here(ctx, "collect", "dest", dest, total)


ALLTOALL = array(
    "Copy block j of ``source`` to PE j, as the block of this PE's number in ``dest`` there.",
    operands="nelems: the elements of a block, an int, the same on all PEs; both arrays have n_pes blocks.",
)


@ALLTOALL
@jit
def alltoall(ctx, dest, source, nelems):
    swap(ctx, False, dest, source, nelems)


@ALLTOALL
@jit
def alltoall_grid(ctx, dest, source, nelems):
    swap(ctx, True, dest, source, nelems)


@jit
def swap(ctx, grid: tl.constexpr, dest, source, nelems):
    arch.check_context(ctx, "alltoall")
    check(ctx, "alltoall", dest, source, nelems * n_pes(ctx), nelems * n_pes(ctx))
    event = arch.begin_meeting(ctx, "alltoall", source, nelems)
    slot, first, count = enter(ctx, "alltoall", grid, nelems)
    turn = begin(slot)
    block = tl.cast(nelems, tl.int64)
    pe = my_pe(ctx)
    for _ in range(n_pes(ctx)):
        pe = after(ctx, pe)
        transport.put(ctx, dest + block * my_pe(ctx) + first, source + block * pe + first, count, pe)
    exchange(ctx, "alltoall", slot, turn)
    end(ctx, slot, turn)
    arch.end_event(ctx, event)


ALLTOALLS = array(
    "Copy every sst-th element of ``source`` to every dst-th place of ``dest``, block j on PE j.",
    operands="dst, sst: ints, 1 or more.  nelems: the elements of a block, an int. All are the same on all PEs.",
)


@ALLTOALLS
@jit
def alltoalls(ctx, dest, source, dst, sst, nelems):
    swap_strided(ctx, False, dest, source, dst, sst, nelems)


@ALLTOALLS
@jit
def alltoalls_grid(ctx, dest, source, dst, sst, nelems):
    swap_strided(ctx, True, dest, source, dst, sst, nelems)


@jit
def swap_strided(ctx, grid: tl.constexpr, dest, source, dst, sst, nelems):
    arch.check_context(ctx, "alltoalls")
    arch.check_blocks(ctx, "alltoalls", "dest", dest, my_pe(ctx), dst, sst, 1, nelems * n_pes(ctx))
    arch.check_blocks(ctx, "alltoalls", "source", source, my_pe(ctx), dst, sst, 1, nelems * n_pes(ctx))
    arch.expect("alltoalls", "source", source, dest.dtype.element_ty)
    event = arch.begin_meeting(ctx, "alltoalls", source, nelems)
    slot, first, count = enter(ctx, "alltoalls", grid, nelems)
    turn = begin(slot)
    block = tl.cast(nelems, tl.int64)
    pe = my_pe(ctx)
    for _ in range(n_pes(ctx)):
        pe = after(ctx, pe)
        to, of = dest + (block * my_pe(ctx) + first) * dst, source + (block * pe + first) * sst
        transport.put_blocks(ctx, to, of, dst, sst, 1, count, pe)
    exchange(ctx, "alltoalls", slot, turn)
    end(ctx, slot, turn)
    arch.end_event(ctx, event)


@jit
def check(ctx, routine: tl.constexpr, dest, source, room, length):
    """Errors: those of all collectives. room, length: the elements of dest and source."""
    arch.check_here(ctx, routine, "dest", dest, room)
    arch.check_here(ctx, routine, "source", source, length)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
