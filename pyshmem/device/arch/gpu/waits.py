"""Waits and tests on one word, on GPUs. Each warp polls by itself; no barrier separates two polls."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base import comparisons
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.checks import check_waited
from pyshmem.device.arch.gpu.polling import poll_until
from pyshmem.device.arch.gpu.record import leave_record
from pyshmem.device.arch.gpu.values import fit, uniform


@triton.jit
def wait(ctx, routine: tl.constexpr, argument: tl.constexpr, pointer, cmp: tl.constexpr, value):
    """Wait until the word satisfies the comparison, as an acquire. Returns: the value seen. A timeout fills the record."""
    check_waited(routine, argument, pointer, cmp)
    seen = wait_until(ctx, routine, pointer, cmp, fit(routine, "value", value, pointer))
    gpu.after_poll(ctx)
    gpu.barrier(ctx)
    return uniform(ctx, seen)


@triton.jit
def test(ctx, routine: tl.constexpr, argument: tl.constexpr, pointer, cmp: tl.constexpr, value):
    """Return whether the word satisfies the comparison now, as an acquire."""
    check_waited(routine, argument, pointer, cmp)
    return holds(fetched(ctx, pointer), cmp, fit(routine, "value", value, pointer))


@triton.jit
def fetch(ctx, pointer):
    """Load a uint64 atomically, as an acquire."""
    return fetched(ctx, pointer)


@triton.jit
def fetched(ctx, pointer):
    seen = gpu.poll(ctx, pointer)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)
    return uniform(ctx, seen)


@triton.jit
def holds(seen, cmp: tl.constexpr, wanted):
    """Apply the comparison CMP_EQ ... CMP_LE, with the operands' signedness."""
    if cmp == comparisons.EQ:
        return seen == wanted
    elif cmp == comparisons.NE:
        return seen != wanted
    elif cmp == comparisons.GT:
        return seen > wanted
    elif cmp == comparisons.GE:
        return seen >= wanted
    elif cmp == comparisons.LT:
        return seen < wanted
    else:
        return seen <= wanted


@triton.jit
def wait_until(ctx, routine: tl.constexpr, pointer, cmp: tl.constexpr, wanted):
    """Poll until the word satisfies the comparison or the wait times out. No barrier. Returns: the last value seen."""
    seen, waiting = look(ctx, cmp, None, pointer, wanted)
    return poll_until(ctx, routine, look, stop, True, cmp, seen, waiting, (pointer, wanted))


@triton.jit
def look(ctx, cmp: tl.constexpr, found, pointer, wanted):
    """Each warp polls the word by itself."""
    seen = gpu.poll(ctx, pointer)
    return seen, not holds(seen, cmp, wanted)


@triton.jit
def stop(ctx, routine: tl.constexpr, cmp: tl.constexpr, seen, waiting, expired, pointer, wanted):
    if waiting & expired:
        unsigned: tl.constexpr = pointer.dtype.element_ty.is_int_unsigned()
        offset = pointer.to(tl.int64) - ctx.base
        leave_record(ctx, routine, offset, cmp, wanted.to(tl.int64), seen.to(tl.int64), unsigned, 0, False)
    return expired
