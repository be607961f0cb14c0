"""Waits and tests on arrays of words, on GPUs. The threads process the array in blocks of one word per thread.

Every result is a reduction over all threads, so that all threads leave a loop together. Words that status excludes, and
lanes behind the last word, are ignored.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu import blocks
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.ordering import join
from pyshmem.device.arch.gpu.polling import poll_until
from pyshmem.device.arch.gpu.record import leave_record
from pyshmem.device.arch.gpu.waits import holds


@triton.jit
def wait_all(ctx, routine: tl.constexpr, ivars, nelems, status, cmp: tl.constexpr, value):
    """Wait until each word has satisfied the comparison, as an acquire. value: a number, or a pointer to one per word."""
    join(ctx)  # other threads may have written status and values
    n = blocks.number(0, tl.int64) + nelems
    for first in range(0, n, gpu.threads(ctx)):
        wait_block(ctx, routine, ivars, n, first, status, cmp, value)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)


@triton.jit
def wait_any(ctx, routine: tl.constexpr, ivars, nelems, status, cmp: tl.constexpr, value):
    """Wait until a word satisfies the comparison, as an acquire. Returns: its index; SIZE_MAX if all are ignored."""
    join(ctx)
    n = blocks.number(0, tl.int64) + nelems
    found = wait_for_one(ctx, routine, look_for_any, first_place(ctx, n), ivars, n, status, cmp, value)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)
    return (found - 1).to(tl.uint64)


@triton.jit
def wait_some(ctx, routine: tl.constexpr, ivars, nelems, indices, status, cmp: tl.constexpr, value):
    """Wait until words satisfy the comparison, as an acquire. Store their indices in order. Returns: their number."""
    join(ctx)
    n = blocks.number(0, tl.int64) + nelems
    found = wait_for_one(ctx, routine, look_for_some, indices, ivars, n, status, cmp, value)
    gpu.after_poll(ctx)
    join(ctx)  # makes the indices visible to every thread
    return found.to(tl.uint64)


@triton.jit
def test_all(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    """Return whether each word satisfies the comparison now, as an acquire."""
    join(ctx)
    n = blocks.number(0, tl.int64) + nelems
    missing = blocks.number(0, tl.int32)
    for first in range(0, n, gpu.threads(ctx)):
        _, counts, seen, wanted = look(ctx, ivars, n, first, status, value)
        missing = missing | tl.max((counts & (holds(seen, cmp, wanted) == 0)).to(tl.int32), axis=0)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)
    return missing == 0


@triton.jit
def test_any(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    """Return the index of a word that satisfies the comparison now, or SIZE_MAX, as an acquire."""
    join(ctx)
    n = blocks.number(0, tl.int64) + nelems
    found = find_any(ctx, first_place(ctx, n), ivars, n, status, cmp, value)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)
    return (found - 1).to(tl.uint64)


@triton.jit
def test_some(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, value):
    """Store the indices of the words that satisfy the comparison now, in order, as an acquire. Returns: their number."""
    join(ctx)
    n = blocks.number(0, tl.int64) + nelems
    found = find_some(ctx, indices, ivars, n, status, cmp, value)
    gpu.after_poll(ctx)
    join(ctx)
    return found.to(tl.uint64)


@triton.jit
def look(ctx, ivars, n, first, status, value):
    """Poll one word per thread, from ``first`` on. Returns: (index, whether it is considered, its value, wanted value)."""
    index = first + blocks.arange(gpu.threads(ctx))
    place = tl.minimum(index, n - 1)
    counts = index < n
    if status is not None:
        counts = counts & (tl.load(status + place) == 0)
    seen = gpu.poll(ctx, ivars + place)
    if value.dtype.is_ptr():
        return index, counts, seen, tl.load(value + place)
    else:
        return index, counts, seen, value


@triton.jit
def find_any(ctx, start, ivars, n, status, cmp: tl.constexpr, value):
    """Search cyclically from ``start`` for a word that satisfies the comparison. Returns: 1 + its index, or 0."""
    nearest = n
    for first in range(0, n, gpu.threads(ctx)):
        index, counts, seen, wanted = look(ctx, ivars, n, first, status, value)
        away = tl.where(index < start, index - start + n, index - start)
        nearest = tl.minimum(nearest, tl.min(tl.where(counts & holds(seen, cmp, wanted), away, n), axis=0))
    found = start + nearest
    return tl.where(nearest == n, 0, tl.where(found < n, found, found - n) + 1)


@triton.jit
def find_some(ctx, indices, ivars, n, status, cmp: tl.constexpr, value):
    """Store the indices of the words that satisfy the comparison, in order. Returns: their number."""
    found = blocks.number(0, tl.int64)
    for first in range(0, n, gpu.threads(ctx)):
        index, counts, seen, wanted = look(ctx, ivars, n, first, status, value)
        one = (counts & holds(seen, cmp, wanted)).to(tl.int32)
        here = tl.sum(one, axis=0)
        if here != 0:
            tl.store(indices + (found + tl.cumsum(one, axis=0) - one), index.to(tl.uint64), mask=one != 0)
        found += here
    return found


@triton.jit
def is_empty(ctx, n, status):
    """Return whether all words are ignored."""
    empty = n == 0
    if status is not None:
        empty = n == n
        for first in range(0, n, gpu.threads(ctx)):
            index = first + blocks.arange(gpu.threads(ctx))
            excluded = tl.load(status + tl.minimum(index, n - 1))
            empty = empty & (not any_thread(ctx, (index < n) & (excluded == 0)))
    return empty


@triton.jit
def first_place(ctx, n):
    """Return a pseudo-random index, the same in all threads, at which the search begins, so that no index starves.

    It is a hash of the clock: the low bits are multiplied by 2**32 divided by the golden ratio.
    """
    now = tl.max(blocks.zeros(gpu.threads(ctx), tl.int32) + gpu.nanoseconds(ctx).to(tl.int32), axis=0)
    return ((now * -1640531527).to(tl.uint32).to(tl.int64) * n) >> 32


@triton.jit
def wait_for_one(ctx, routine: tl.constexpr, search: tl.constexpr, operand, ivars, n, status, cmp: tl.constexpr, value):
    """Poll until ``search`` finds a nonzero result. Returns: it, or 0 if all words are ignored or the wait times out."""
    found, missing = search(ctx, cmp, None, operand, ivars, n, status, value)
    waiting = missing & (not is_empty(ctx, n, status))
    return poll_until(ctx, routine, search, stop, True, cmp, found, waiting, (operand, ivars, n, status, value))


@triton.jit
def look_for_any(ctx, cmp: tl.constexpr, found, start, ivars, n, status, value):
    found = find_any(ctx, start, ivars, n, status, cmp, value)
    return found, found == 0


@triton.jit
def look_for_some(ctx, cmp: tl.constexpr, found, indices, ivars, n, status, value):
    found = find_some(ctx, indices, ivars, n, status, cmp, value)
    return found, found == 0


@triton.jit
def stop(ctx, routine: tl.constexpr, cmp: tl.constexpr, found, waiting, expired, operand, ivars, n, status, value):
    over = any_thread(ctx, expired)
    if waiting & over:
        for first in range(0, n, gpu.threads(ctx)):
            index, counts, seen, wanted = look(ctx, ivars, n, first, status, value)
            tell(ctx, routine, ivars, index, counts, seen, cmp, wanted)
    return over


@triton.jit
def wait_block(ctx, routine: tl.constexpr, ivars, n, first, status, cmp: tl.constexpr, value):
    """Poll one word per thread, from ``first`` on, until each has satisfied the comparison once or the wait times out."""
    index, counts, seen, wanted = look(ctx, ivars, n, first, status, value)
    missing = counts & (holds(seen, cmp, wanted) == 0)
    waiting = any_thread(ctx, missing)
    operands = (ivars, n, index, wanted)
    poll_until(ctx, routine, look_at_block, stop_at_block, True, cmp, (seen, missing), waiting, operands)


@triton.jit
def look_at_block(ctx, cmp: tl.constexpr, found, ivars, n, index, wanted):
    _, missing = found
    seen = gpu.poll(ctx, ivars + tl.minimum(index, n - 1))
    missing = missing & (holds(seen, cmp, wanted) == 0)
    return (seen, missing), any_thread(ctx, missing)


@triton.jit
def stop_at_block(ctx, routine: tl.constexpr, cmp: tl.constexpr, found, waiting, expired, ivars, n, index, wanted):
    seen, missing = found
    over = any_thread(ctx, expired)
    if waiting & over:
        tell(ctx, routine, ivars, index, missing, seen, cmp, wanted)
    return over


@triton.jit
def any_thread(ctx, flag):
    """Return whether ``flag`` is set in any thread. The result is the same in all threads."""
    return tl.max(blocks.zeros(gpu.threads(ctx), tl.int32) + flag.to(tl.int32), axis=0) != 0


@triton.jit
def tell(ctx, routine: tl.constexpr, ivars, index, mask, seen, cmp: tl.constexpr, wanted):
    """Write a record of one of the words in ``mask``."""
    unsigned: tl.constexpr = ivars.dtype.element_ty.is_int_unsigned()
    offset = (ivars + index).to(tl.int64) - ctx.base
    leave_record(
        ctx, routine, offset, cmp, wanted.to(tl.int64), seen.to(tl.int64), unsigned, tl.where(mask, 0, -1), False
    )
