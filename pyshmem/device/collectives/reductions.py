"""Reductions and scans of symmetric arrays in kernels. Spec: OpenSHMEM 1.6, 9.9.

The plain form is called by one program of each PE, the form with _grid by all programs of a grid.
"""

from __future__ import annotations

from functools import partial

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.packing import combine, summed_in
from pyshmem.device.collectives.scratch import after, begin, end, enter, exchange
from pyshmem.device.context import my_pe, n_pes
from pyshmem.device.templates import GRID, ONE, documented
from pyshmem.device.transport import together

TOGETHER = tl.constexpr(8)  # members whose elements a thread loads at once

REDUCTION = """{what}

ctx: a device context.  {count}: an int, the same on all PEs.
dest, source: one pointer each, to one dtype, {types}, symmetric, given as this PE's addresses. They are
    the same array or do not overlap. Half types are combined in float32 and rounded once; all PEs get the same bits.
Order: all PEs of the team call in the same order, with no barrier between. dest must be ready on all PEs before any of
    them calls; on return dest is complete here and source is free. {who}
Errors: DtypeError and ArgumentError for operands of a wrong type; in interpreted kernels NotSymmetricError and
    OutOfRangeError; {overdue}, or too many programs.
Spec: OpenSHMEM 1.6, 9.9 SHMEM_{NAME}.
"""
INTEGERS = "integers"
reduction = partial(documented, REDUCTION, count="nreduce", types="integers or floats", who=(ONE, GRID))


AND_REDUCE = reduction(
    "Combine ``source[:nreduce]`` of all PEs into ``dest`` on every PE, by bitwise and.", types=INTEGERS
)


@AND_REDUCE
@jit
def and_reduce(ctx, dest, source, nreduce):
    fold(ctx, "and_reduce", "and", False, dest, source, nreduce)


@AND_REDUCE
@jit
def and_reduce_grid(ctx, dest, source, nreduce):
    fold(ctx, "and_reduce", "and", True, dest, source, nreduce)


OR_REDUCE = reduction(
    "Combine ``source[:nreduce]`` of all PEs into ``dest`` on every PE, by bitwise or.", types=INTEGERS
)


@OR_REDUCE
@jit
def or_reduce(ctx, dest, source, nreduce):
    fold(ctx, "or_reduce", "or", False, dest, source, nreduce)


@OR_REDUCE
@jit
def or_reduce_grid(ctx, dest, source, nreduce):
    fold(ctx, "or_reduce", "or", True, dest, source, nreduce)


XOR_REDUCE = reduction(
    "Combine ``source[:nreduce]`` of all PEs into ``dest`` on every PE, by bitwise exclusive or.", types=INTEGERS
)


@XOR_REDUCE
@jit
def xor_reduce(ctx, dest, source, nreduce):
    fold(ctx, "xor_reduce", "xor", False, dest, source, nreduce)


@XOR_REDUCE
@jit
def xor_reduce_grid(ctx, dest, source, nreduce):
    fold(ctx, "xor_reduce", "xor", True, dest, source, nreduce)


SUM_REDUCE = reduction("Combine ``source[:nreduce]`` of all PEs into ``dest`` on every PE, by addition.")


@SUM_REDUCE
@jit
def sum_reduce(ctx, dest, source, nreduce):
    fold(ctx, "sum_reduce", "sum", False, dest, source, nreduce)


@SUM_REDUCE
@jit
def sum_reduce_grid(ctx, dest, source, nreduce):
    fold(ctx, "sum_reduce", "sum", True, dest, source, nreduce)


PROD_REDUCE = reduction("Combine ``source[:nreduce]`` of all PEs into ``dest`` on every PE, by multiplication.")


@PROD_REDUCE
@jit
def prod_reduce(ctx, dest, source, nreduce):
    fold(ctx, "prod_reduce", "prod", False, dest, source, nreduce)


@PROD_REDUCE
@jit
def prod_reduce_grid(ctx, dest, source, nreduce):
    fold(ctx, "prod_reduce", "prod", True, dest, source, nreduce)


MIN_REDUCE = reduction(
    "Combine ``source[:nreduce]`` of all PEs into ``dest`` on every PE, by minimum; NaN where any is NaN."
)


@MIN_REDUCE
@jit
def min_reduce(ctx, dest, source, nreduce):
    fold(ctx, "min_reduce", "min", False, dest, source, nreduce)


@MIN_REDUCE
@jit
def min_reduce_grid(ctx, dest, source, nreduce):
    fold(ctx, "min_reduce", "min", True, dest, source, nreduce)


MAX_REDUCE = reduction(
    "Combine ``source[:nreduce]`` of all PEs into ``dest`` on every PE, by maximum; NaN where any is NaN."
)


@MAX_REDUCE
@jit
def max_reduce(ctx, dest, source, nreduce):
    fold(ctx, "max_reduce", "max", False, dest, source, nreduce)


@MAX_REDUCE
@jit
def max_reduce_grid(ctx, dest, source, nreduce):
    fold(ctx, "max_reduce", "max", True, dest, source, nreduce)


SUM_INSCAN = reduction(
    "Store the sum of ``source[:nelems]`` over the PEs up to and with this one, to ``dest``.", count="nelems"
)


@SUM_INSCAN
@jit
def sum_inscan(ctx, dest, source, nelems):
    fold(ctx, "sum_inscan", "inscan", False, dest, source, nelems)


@SUM_INSCAN
@jit
def sum_inscan_grid(ctx, dest, source, nelems):
    fold(ctx, "sum_inscan", "inscan", True, dest, source, nelems)


SUM_EXSCAN = reduction(
    "Store the sum of ``source[:nelems]`` over the PEs before this one; zeros on the first, to ``dest``.",
    count="nelems",
)


@SUM_EXSCAN
@jit
def sum_exscan(ctx, dest, source, nelems):
    fold(ctx, "sum_exscan", "exscan", False, dest, source, nelems)


@SUM_EXSCAN
@jit
def sum_exscan_grid(ctx, dest, source, nelems):
    fold(ctx, "sum_exscan", "exscan", True, dest, source, nelems)


@jit
def fold(
    ctx, routine: tl.constexpr, op: tl.constexpr, grid: tl.constexpr, dest, source, nelems, apart: tl.constexpr = False
):
    """Combine this PE's share of the program's part of all sources, and store it on all PEs.

    op: an operator of combine, "inscan" or "exscan".  apart: whether to load everything before the first store to a peer.
    """
    arch.check_here(ctx, routine, "dest", dest, nelems)
    arch.check_here(ctx, routine, "source", source, nelems)
    arch.check_combined(routine, op, dest)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    event = arch.begin_meeting(ctx, routine, source, nelems)
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
    arch.end_event(ctx, event)


@jit
def fold_part(ctx, op: tl.constexpr, dest, source, count, apart: tl.constexpr):
    """Use accesses of 16 bytes if both are aligned, four per thread in flight, then one; single elements for the rest."""
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
    """Combine whole blocks from element ``done`` on; return where they end."""
    each: tl.constexpr = together(dest.dtype.element_ty)
    most = count // block * block
    for start in range(done, most, block):
        fold_block(ctx, op, dest + start, source + start, arch.arange(block, each), count, True, apart)
    return most


@jit
def fold_block(ctx, op: tl.constexpr, dest, source, lane, count, whole: tl.constexpr, apart: tl.constexpr):
    """Combine the elements at ``lane``: all, aligned to 16 bytes, if ``whole``, else those below ``count``."""
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
    """``total`` of the first PE combined with the others in their order.

    In a small team of one node all loads are in flight at once.
    """
    if (
        ctx.members <= TOGETHER and ctx.reach == 0
    ):  # DIRECT; the compiler would compare a global constant at each launch
        for pe in tl.static_range(1, ctx.members):
            value = load_from(ctx, source, tl.minimum(n_pes(ctx) - 1, pe), lane, count, whole)
            total = tl.where(n_pes(ctx) > pe, combine(op, total, value), total)
    else:
        for pe in range(1, n_pes(ctx)):
            total = combine(op, total, load_from(ctx, source, pe, lane, count, whole))
    return total


@jit
def load_from(ctx, source, pe, lane, count, whole: tl.constexpr):
    """Elements on ``pe``, in the type in which they are combined."""
    found = transport.load_block(ctx, source, lane, pe, count, whole)
    return found.to(summed_in(source.dtype.element_ty))
