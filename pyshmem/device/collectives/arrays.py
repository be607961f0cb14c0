"""OpenSHMEM's collectives that move arrays, in kernels. Spec: OpenSHMEM 1.6, 9.9.

Each has two forms. The plain name is called by one program of each PE at a time, whichever that is. The one that ends in
_grid is called by all programs of grids that are as large on all PEs: each moves an equal part, and meets only the program
of its number. So there what other programs have written of source must be ready before the kernel or a barrier_all_grid, and
only behind one is dest whole for all programs.
dest, source: pointers to one dtype, whatever it is, symmetric, given as this PE's addresses, to arrays that lie apart.
Order: all PEs of ctx's team call in the same order. dest is ready on all of them before any calls; on return dest is whole
here and source free again. Calls may follow each other with no barrier between.
Errors: two pointees, an address out of live memory, a grid of more programs than ctx has slots for, a wait over
PYSHMEM_WAIT_TIMEOUT.
"""

from __future__ import annotations

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


@jit
def broadcast_array(ctx, dest, source, nelems, PE_root):
    """Copy ``source[:nelems]`` on ``PE_root`` to ``dest`` on every PE of ctx's team, the root's own too.

    dest, source: as in all collectives; they may be the same.  nelems, PE_root: ints, the same on all PEs.
    Order: as in all collectives; the root waits for nobody.  Errors: theirs, a root that is no PE.
    Spec: 9.9 SHMEM_BROADCAST.
    """
    cast_array(ctx, False, dest, source, nelems, PE_root)


@jit
def broadcast_grid(ctx, dest, source, nelems, PE_root):
    """broadcast of an array by all programs.

    nelems, PE_root: ints, the same on all PEs.  Order: the root waits for nobody.  Spec: 9.9 SHMEM_BROADCAST.
    """
    cast_array(ctx, True, dest, source, nelems, PE_root)


@jit
def cast_array(ctx, grid: tl.constexpr, dest, source, nelems, root):
    arch.check_one(ctx, "broadcast", "dest", dest, None, nelems)
    arch.check_one(ctx, "broadcast", "source", source, root, nelems)
    arch.expect("broadcast", "source", source, dest.dtype.element_ty)
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


@jit
def push(ctx, dest, source, count):
    """Copy from here to every PE, beginning with the next one."""
    pe = my_pe(ctx)
    for _ in range(n_pes(ctx)):
        pe = after(ctx, pe)
        transport.put(ctx, dest, source, count, pe)


@jit
def fcollect(ctx, dest, source, nelems):
    """Put ``source[:nelems]`` of each PE, one behind the other, into ``dest`` on every PE.

    nelems: an int, the same on all PEs.  Spec: 9.9 SHMEM_FCOLLECT.
    """
    gather(ctx, False, dest, source, nelems)


@jit
def fcollect_grid(ctx, dest, source, nelems):
    """fcollect by all programs. Spec: 9.9 SHMEM_FCOLLECT."""
    gather(ctx, True, dest, source, nelems)


@jit
def gather(ctx, grid: tl.constexpr, dest, source, nelems):
    check(ctx, "fcollect", dest, source, nelems * n_pes(ctx), nelems)
    slot, first, count = enter(ctx, "fcollect", grid, nelems)
    turn = begin(slot)
    push(ctx, dest + tl.cast(nelems, tl.int64) * my_pe(ctx) + first, source + first, count)
    exchange(ctx, "fcollect", slot, turn)
    end(ctx, slot, turn)


@jit
def collect(ctx, dest, source, nelems):
    """fcollect where each PE brings its own ``nelems``, which may be 0. Spec: 9.9 SHMEM_COLLECT."""
    gather_uneven(ctx, False, dest, source, nelems)


@jit
def collect_grid(ctx, dest, source, nelems):
    """collect by all programs. Spec: 9.9 SHMEM_COLLECT."""
    gather_uneven(ctx, True, dest, source, nelems)


@jit
def gather_uneven(ctx, grid: tl.constexpr, dest, source, nelems):
    check(ctx, "collect", dest, source, nelems, nelems)
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
    # not before all have passed the exchange: a program that catches this finds the next call in order
    arch.check_one(ctx, "collect", "dest", dest, None, total)


@jit
def alltoall(ctx, dest, source, nelems):
    """Put block j of ``source`` into ``dest`` on PE j, as the block of this PE's number there.

    nelems: of a block, an int, the same on all PEs; both arrays have n_pes blocks.  Spec: 9.9 SHMEM_ALLTOALL.
    """
    swap(ctx, False, dest, source, nelems)


@jit
def alltoall_grid(ctx, dest, source, nelems):
    """alltoall by all programs, each with a part of every block. Spec: 9.9 SHMEM_ALLTOALL."""
    swap(ctx, True, dest, source, nelems)


@jit
def swap(ctx, grid: tl.constexpr, dest, source, nelems):
    check(ctx, "alltoall", dest, source, nelems * n_pes(ctx), nelems * n_pes(ctx))
    slot, first, count = enter(ctx, "alltoall", grid, nelems)
    turn = begin(slot)
    block = tl.cast(nelems, tl.int64)
    pe = my_pe(ctx)
    for _ in range(n_pes(ctx)):
        pe = after(ctx, pe)
        transport.put(ctx, dest + block * my_pe(ctx) + first, source + block * pe + first, count, pe)
    exchange(ctx, "alltoall", slot, turn)
    end(ctx, slot, turn)


@jit
def alltoalls(ctx, dest, source, dst, sst, nelems):
    """alltoall of every sst-th element of ``source`` to every dst-th place of ``dest``; ``nelems`` of them make a block.

    dst, sst: ints, 1 or more, the same on all PEs.  Spec: 9.9 SHMEM_ALLTOALLS.
    """
    swap_strided(ctx, False, dest, source, dst, sst, nelems)


@jit
def alltoalls_grid(ctx, dest, source, dst, sst, nelems):
    """alltoalls by all programs, each with a part of every block. Spec: 9.9 SHMEM_ALLTOALLS."""
    swap_strided(ctx, True, dest, source, dst, sst, nelems)


@jit
def swap_strided(ctx, grid: tl.constexpr, dest, source, dst, sst, nelems):
    arch.check_blocks(ctx, "alltoalls", "dest", dest, None, dst, sst, 1, nelems * n_pes(ctx))
    arch.check_blocks(ctx, "alltoalls", "source", source, None, dst, sst, 1, nelems * n_pes(ctx))
    arch.expect("alltoalls", "source", source, dest.dtype.element_ty)
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


@jit
def check(ctx, routine: tl.constexpr, dest, source, room, length):
    """Errors: as all collectives'. room, length: elements of dest and source."""
    arch.check_one(ctx, routine, "dest", dest, None, room)
    arch.check_one(ctx, routine, "source", source, None, length)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
