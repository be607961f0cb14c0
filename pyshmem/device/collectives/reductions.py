"""OpenSHMEM's reductions and scans of arrays, in kernels. Spec: OpenSHMEM 1.6, 9.9.

Element by element, in the order of PEs, with the same bits on all PEs; half types are combined in float32 and rounded once.
The plain name is called by one program of each PE at a time, whichever that is. The one that ends in _grid is called by all
programs of grids that are as large on all PEs: each combines an equal part, and meets only the program of its number. So
there what other programs have written of source must be ready before the kernel or a barrier_all_grid, and only behind one
is dest whole for all programs.
dest, source: pointers to one dtype, integers or floats (and, or, xor: integers), symmetric, given as this PE's addresses,
to the same array or to arrays that lie apart.  nreduce, nelems: elements, an int, the same on all PEs.
Order: all PEs of ctx's team call in the same order. dest is ready on all of them before any calls; on return dest is whole
here and source free again. Calls may follow each other with no barrier between.
Errors: two pointees, a dtype that the operator is not defined for, an address out of live memory, a grid of more programs
than ctx has slots for, a wait over PYSHMEM_WAIT_TIMEOUT.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.packing import combine, summed_in
from pyshmem.device.collectives.scratch import after, begin, end, enter, exchange
from pyshmem.device.context import my_pe, n_pes
from pyshmem.device.transport import together

TOGETHER = tl.constexpr(8)  # members whose elements a thread loads at once


@jit
def and_reduce(ctx, dest, source, nreduce):
    """Combine ``source[:nreduce]`` of all PEs by bitwise and into ``dest`` on every PE. Spec: 9.9 SHMEM_AND_REDUCE."""
    fold(ctx, "and_reduce", "and", False, dest, source, nreduce)


@jit
def and_reduce_grid(ctx, dest, source, nreduce):
    """and_reduce by all programs. Spec: 9.9 SHMEM_AND_REDUCE."""
    fold(ctx, "and_reduce", "and", True, dest, source, nreduce)


@jit
def or_reduce(ctx, dest, source, nreduce):
    """and_reduce by bitwise or. Spec: 9.9 SHMEM_OR_REDUCE."""
    fold(ctx, "or_reduce", "or", False, dest, source, nreduce)


@jit
def or_reduce_grid(ctx, dest, source, nreduce):
    """or_reduce by all programs. Spec: 9.9 SHMEM_OR_REDUCE."""
    fold(ctx, "or_reduce", "or", True, dest, source, nreduce)


@jit
def xor_reduce(ctx, dest, source, nreduce):
    """and_reduce by bitwise exclusive or. Spec: 9.9 SHMEM_XOR_REDUCE."""
    fold(ctx, "xor_reduce", "xor", False, dest, source, nreduce)


@jit
def xor_reduce_grid(ctx, dest, source, nreduce):
    """xor_reduce by all programs. Spec: 9.9 SHMEM_XOR_REDUCE."""
    fold(ctx, "xor_reduce", "xor", True, dest, source, nreduce)


@jit
def sum_reduce(ctx, dest, source, nreduce):
    """Add ``source[:nreduce]`` of all PEs up into ``dest`` on every PE. Spec: 9.9 SHMEM_SUM_REDUCE."""
    fold(ctx, "sum_reduce", "sum", False, dest, source, nreduce)


@jit
def sum_reduce_grid(ctx, dest, source, nreduce):
    """sum_reduce by all programs. Spec: 9.9 SHMEM_SUM_REDUCE."""
    fold(ctx, "sum_reduce", "sum", True, dest, source, nreduce)


@jit
def prod_reduce(ctx, dest, source, nreduce):
    """sum_reduce of products. Spec: 9.9 SHMEM_PROD_REDUCE."""
    fold(ctx, "prod_reduce", "prod", False, dest, source, nreduce)


@jit
def prod_reduce_grid(ctx, dest, source, nreduce):
    """prod_reduce by all programs. Spec: 9.9 SHMEM_PROD_REDUCE."""
    fold(ctx, "prod_reduce", "prod", True, dest, source, nreduce)


@jit
def min_reduce(ctx, dest, source, nreduce):
    """sum_reduce to the smallest; NaN where any is NaN. Spec: 9.9 SHMEM_MIN_REDUCE."""
    fold(ctx, "min_reduce", "min", False, dest, source, nreduce)


@jit
def min_reduce_grid(ctx, dest, source, nreduce):
    """min_reduce by all programs. Spec: 9.9 SHMEM_MIN_REDUCE."""
    fold(ctx, "min_reduce", "min", True, dest, source, nreduce)


@jit
def max_reduce(ctx, dest, source, nreduce):
    """sum_reduce to the largest; NaN where any is NaN. Spec: 9.9 SHMEM_MAX_REDUCE."""
    fold(ctx, "max_reduce", "max", False, dest, source, nreduce)


@jit
def max_reduce_grid(ctx, dest, source, nreduce):
    """max_reduce by all programs. Spec: 9.9 SHMEM_MAX_REDUCE."""
    fold(ctx, "max_reduce", "max", True, dest, source, nreduce)


@jit
def sum_inscan(ctx, dest, source, nelems):
    """Put the sum of ``source[:nelems]`` of the PEs up to and with this one into ``dest``. Spec: 9.9 SHMEM_SUM_INSCAN."""
    fold(ctx, "sum_inscan", "inscan", False, dest, source, nelems)


@jit
def sum_inscan_grid(ctx, dest, source, nelems):
    """sum_inscan by all programs. Spec: 9.9 SHMEM_SUM_INSCAN."""
    fold(ctx, "sum_inscan", "inscan", True, dest, source, nelems)


@jit
def sum_exscan(ctx, dest, source, nelems):
    """sum_inscan of the PEs before this one: zeros on the first. Spec: 9.9 SHMEM_SUM_EXSCAN."""
    fold(ctx, "sum_exscan", "exscan", False, dest, source, nelems)


@jit
def sum_exscan_grid(ctx, dest, source, nelems):
    """sum_exscan by all programs. Spec: 9.9 SHMEM_SUM_EXSCAN."""
    fold(ctx, "sum_exscan", "exscan", True, dest, source, nelems)


@jit
def fold(
    ctx, routine: tl.constexpr, op: tl.constexpr, grid: tl.constexpr, dest, source, nelems, apart: tl.constexpr = False
):
    """Of each program's part every PE combines a part of all PEs' sources, and stores it on all PEs: nobody else touches it.

    op: an operator of combine, "inscan" or "exscan".  apart: whether to load all before anything is sent on.
    """
    arch.check_one(ctx, routine, "dest", dest, None, nelems)
    arch.check_one(ctx, routine, "source", source, None, nelems)
    arch.check_combined(routine, op, dest)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    slot, first, count = enter(ctx, routine, grid, nelems)
    turn = begin(slot)
    exchange(ctx, routine, slot, turn)
    each = (count + 16 * n_pes(ctx) - 1) // (16 * n_pes(ctx)) * 16
    mine = tl.minimum(each * my_pe(ctx), count)
    part, own = tl.minimum(each, count - mine), dest + first + mine
    fold_part(ctx, op, own, source + first + mine, part, apart)
    if apart:
        pe = my_pe(ctx)
        for _ in range(1, n_pes(ctx)):
            pe = after(ctx, pe)
            transport.put(ctx, own, own, part, pe)
    exchange(ctx, routine, slot, turn + 1)
    end(ctx, slot, turn + 1)


@jit
def fold_part(ctx, op: tl.constexpr, dest, source, count, apart: tl.constexpr):
    """Where both are aligned to it by accesses of 16 bytes, four of a thread in flight, then one; the rest one by one."""
    threads: tl.constexpr = arch.threads(ctx)
    each: tl.constexpr = together(dest.dtype.element_ty)
    done = tl.cast(0, tl.int64)
    if ((dest.to(tl.int64) | source.to(tl.int64)) & 15) == 0:
        done = fold_wide(ctx, op, dest, source, done, count, 4 * threads * each, apart)
        done = fold_wide(ctx, op, dest, source, done, count, threads * each, apart)
    lane = arch.apart(threads)
    for start in range(done, count, 4 * threads):
        fold_block(ctx, op, dest + start, source + start, lane, count - start, False, apart)


@jit
def fold_wide(ctx, op: tl.constexpr, dest, source, done, count, block: tl.constexpr, apart: tl.constexpr):
    """Whole blocks from element ``done`` on; how far that is."""
    each: tl.constexpr = together(dest.dtype.element_ty)
    most = count // block * block
    for start in range(done, most, block):
        fold_block(ctx, op, dest + start, source + start, arch.arange(block, each), count, True, apart)
    return most


@jit
def fold_block(ctx, op: tl.constexpr, dest, source, lane, count, whole: tl.constexpr, apart: tl.constexpr):
    """The elements at ``lane``: all, aligned to 16 bytes, where they are ``whole``, else those below ``count``."""
    if op == "exscan":
        total = tl.cast(lane * 0, summed_in(source.dtype.element_ty))
        for pe in range(n_pes(ctx)):
            value = load_from(ctx, source, pe, lane, count, whole)
            transport.store_block(ctx, dest, lane, total, pe, count, whole)
            total += value
    else:
        total = load_from(ctx, source, 0, lane, count, whole)
        if op == "inscan":
            transport.store_block(ctx, dest, lane, total, 0, count, whole)
            for pe in range(1, n_pes(ctx)):
                total += load_from(ctx, source, pe, lane, count, whole)
                transport.store_block(ctx, dest, lane, total, pe, count, whole)
        else:
            total = combined(ctx, op, total, source, lane, count, whole)
            if apart:
                transport.store_block(ctx, dest, lane, total, my_pe(ctx), count, whole)
            else:
                for pe in range(n_pes(ctx)):
                    transport.store_block(ctx, dest, lane, total, pe, count, whole)


@jit
def combined(ctx, op: tl.constexpr, total, source, lane, count, whole: tl.constexpr):
    """``total`` of the first PE, and of the others in their order; of few with all loads on their way at once."""
    if ctx.members <= TOGETHER:
        for pe in tl.static_range(1, ctx.members):
            value = load_from(ctx, source, tl.minimum(n_pes(ctx) - 1, pe), lane, count, whole)
            total = tl.where(n_pes(ctx) > pe, combine(op, total, value), total)
    else:
        for pe in range(1, n_pes(ctx)):
            total = combine(op, total, load_from(ctx, source, pe, lane, count, whole))
    return total


@jit
def load_from(ctx, source, pe, lane, count, whole: tl.constexpr):
    """Elements on ``pe``, of the type in which they are combined."""
    found = transport.load_block(ctx, source, lane, pe, count, whole)
    return found.to(summed_in(source.dtype.element_ty))
