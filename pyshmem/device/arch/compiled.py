"""The GPUs' side: what the device functions are made of, as Triton compiles it. The memory model is in instructions.

All threads of a program make these calls. Where they poll, each warp does so by itself, without a barrier between two polls.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch import blocks, operators
from pyshmem.device.arch import instructions as gpu
from pyshmem.device.arch.checks import (
    check_context,
    check_value,
    check_waited,
    integer_like,
    is_number,
    wrap,
)
from pyshmem.device.arch.exchange import meet
from pyshmem.device.arch.places import is_nvidia
from pyshmem.device.arch.waiting import holds, wait_until

jit = triton.jit
operate = triton.jit(operators.operate)


@jit
def atomic(
    ctx: tl.tensor,
    op: tl.constexpr,
    pointers: tl.tensor,
    value: tl.tensor,
    mask: tl.tensor,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> tl.tensor:
    """Triton's atomic of that operator. On AMD between GPUs the order is given outside of it.

    There some operators are loops of compare-and-swap, and Triton 3.7's own release may not wait for what it writes back.
    """
    value, lanes = blocks.spread(value, pointers), blocks.lanes(mask, pointers)
    if scope == "sys" and not is_nvidia(ctx.where):
        before(ctx, sem)
        found = operate(op, pointers, value, lanes, "relaxed", scope)
        behind(ctx, sem)
        return found
    else:
        return operate(op, pointers, value, lanes, sem, scope)


@jit
def compare_swap(
    ctx: tl.tensor,
    pointers: tl.tensor,
    expected: tl.tensor,
    wanted: tl.tensor,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> tl.tensor:
    """Triton's atomic_cas of integers, ordered as ``atomic``."""
    if scope == "sys" and not is_nvidia(ctx.where):
        before(ctx, sem)
        found = swap_each(ctx, pointers, expected, wanted, "relaxed", scope)
        behind(ctx, sem)
        return found
    else:
        return swap_each(ctx, pointers, expected, wanted, sem, scope)


@jit
def swap_each(
    ctx: tl.tensor,
    pointers: tl.tensor,
    expected: tl.tensor,
    wanted: tl.tensor,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> tl.tensor:
    """For AMD up to Triton 3.9 lets every thread swap, also those that only repeat an element of a block with too few.

    So a block gets more rows, up to an element a thread; those swap an element with what it must equal, which changes none.
    """
    few: tl.constexpr = blocks.too_few(pointers, gpu.threads(ctx))
    if few and not is_nvidia(ctx.where):
        count: tl.constexpr = blocks.count_of(pointers)
        rows: tl.constexpr = gpu.threads(ctx) // count
        first = tl.arange(0, rows)[:, None] == 0
        places = tl.reshape(pointers, [count])[None, :] + tl.zeros([rows, 1], tl.int32)
        value = tl.reshape(wanted, [count])[None, :]
        must = tl.where(first, tl.reshape(expected, [count])[None, :], value)
        found = tl.atomic_cas(places, must, tl.broadcast_to(value, [rows, count]), sem=sem, scope=scope)
        return tl.reshape(tl.sum(tl.where(first, found, 0), axis=0), pointers.shape)
    else:
        return tl.atomic_cas(pointers, expected, wanted, sem=sem, scope=scope)


@jit
def before(ctx: tl.tensor, sem: tl.constexpr) -> None:
    if sem == "release" or sem == "acq_rel":
        gpu.drain(ctx)
        gpu.release(ctx)


@jit
def behind(ctx: tl.tensor, sem: tl.constexpr) -> None:
    if sem == "acquire" or sem == "acq_rel":
        gpu.acquire(ctx)


@jit
def fit(routine: tl.constexpr, argument: tl.constexpr, value: tl.tensor, pointers: tl.tensor) -> tl.tensor:
    """``value`` as a tensor of the pointee's type: integers wrap, floats round. Errors, in the compiler: check_value's."""
    check_value(routine, argument, value, pointers)
    wanted: tl.constexpr = pointers.dtype.element_ty
    if is_number(value):
        return blocks.number(wrap(value, wanted), wanted)
    elif wanted == tl.int1:
        return value != 0
    else:
        return value.to(wanted)


@jit
def rounded(value: tl.tensor, element: tl.constexpr) -> tl.tensor:
    """Floats as others, to the nearest."""
    return value.to(element)


@jit
def copy(ctx: tl.tensor, dest: tl.tensor, source: tl.tensor, nelems: tl.tensor) -> None:
    """nelems elements from source to dest, by all threads; 16 bytes a thread where both are aligned to 16 bytes."""
    join(ctx)  # other threads may have written the source
    element: tl.constexpr = tl.pointer_type(integer_like(dest.dtype.element_ty))
    to, of, n = dest.to(element, bitcast=True), source.to(element, bitcast=True), blocks.number(0, tl.int64) + nelems
    done = blocks.number(0, tl.int64)
    if ((dest.to(tl.int64) | source.to(tl.int64)) & 15) == 0:
        done = copy_wide(ctx, to, of, n)
    copy_elements(ctx, to, of, done, n)


@jit
def copy_wide(ctx: tl.tensor, to: tl.tensor, of: tl.tensor, n: tl.tensor) -> tl.tensor:
    """Copy whole blocks, 16 bytes an access and four of them in flight, then one; how many elements that were."""
    a_thread: tl.constexpr = 128 // to.dtype.element_ty.primitive_bitwidth
    small: tl.constexpr = gpu.threads(ctx) * a_thread
    large: tl.constexpr = small * 4
    most = n // large * large
    for first in range(0, most, large):
        copy_block(to + first, of + first, large, a_thread)
    rest = n // small * small
    for first in range(most, rest, small):
        copy_block(to + first, of + first, small, a_thread)
    return rest


@jit
def copy_block(to: tl.tensor, of: tl.tensor, count: tl.constexpr, each: tl.constexpr) -> None:
    lane = blocks.arange(count, each)
    tl.store(tl.multiple_of(to + lane, 16), tl.load(tl.multiple_of(of + lane, 16)))


@jit
def copy_elements(ctx: tl.tensor, to: tl.tensor, of: tl.tensor, done: tl.tensor, n: tl.tensor) -> None:
    """Copy the elements from ``done`` to ``n`` one by one, each by a single store, four of a thread in flight."""
    count: tl.constexpr = gpu.threads(ctx)
    lanes = blocks.apart(count)
    whole = done + (n - done) // (4 * count) * (4 * count)
    for first in range(done, whole, 4 * count):
        tl.store(to + (first + lanes), tl.load(of + (first + lanes)))
    if whole < n:
        place = whole + lanes
        tl.store(to + place, tl.load(of + place, mask=place < n), mask=place < n)


@jit
def join(ctx: tl.tensor) -> None:
    """What every thread of the program has stored and loaded is done for all its threads."""
    gpu.drain(ctx)
    gpu.barrier(ctx)


@jit
def fence(ctx: tl.tensor) -> None:
    gpu.drain(ctx)
    gpu.release(ctx)
    gpu.barrier(ctx)


@jit
def quiet(ctx: tl.tensor) -> None:
    gpu.drain(ctx)
    gpu.complete(ctx)
    gpu.barrier(ctx)


@jit
def store_single(ctx: tl.tensor, pointer: tl.tensor, value: tl.tensor) -> None:
    gpu.store_single(ctx, pointer, value)


@jit
def set_signal(ctx: tl.tensor, pointer: tl.tensor, value: tl.tensor) -> None:
    """Store a uint64 as an atomic, after what every thread of the program stored."""
    join(ctx)
    gpu.store_release(ctx, pointer, value)


@jit
def add_signal(ctx: tl.tensor, pointer: tl.tensor, value: tl.tensor) -> None:
    join(ctx)
    gpu.add_release(ctx, pointer, value)


@jit
def read(ctx: tl.tensor, pointer: tl.tensor) -> tl.tensor:
    """One element as it is in memory now."""
    return gpu.read(ctx, pointer)


@jit
def fetch(ctx: tl.tensor, pointer: tl.tensor) -> tl.tensor:
    """Load a uint64 as an atomic, before everything after it."""
    return fetched(ctx, pointer)


@jit
def fetched(ctx: tl.tensor, pointer: tl.tensor) -> tl.tensor:
    seen = gpu.poll(ctx, pointer)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)
    return uniform(ctx, seen)


@jit
def uniform(ctx: tl.tensor, value: tl.tensor) -> tl.tensor:
    """One value for the whole program, of what its warps have seen: the largest."""
    if blocks.num_warps() == 1:
        return value  # one load instruction: one value
    else:
        return tl.max(blocks.zeros(gpu.threads(ctx), value.dtype) + value, axis=0)


@jit
def synchronise(ctx: tl.tensor, routine: tl.constexpr) -> None:
    """The barrier of ctx's team, after all that this program's threads have stored."""
    check_context(ctx, routine)
    meet(ctx, routine)


@jit
def wait(
    ctx: tl.tensor,
    routine: tl.constexpr,
    argument: tl.constexpr,
    pointer: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> tl.tensor:
    """Wait as an acquire until the word compares so; the value seen. A wait over ctx's limit fills the record."""
    check_waited(routine, argument, pointer, cmp)
    seen = wait_until(ctx, routine, pointer, cmp, fit(routine, "value", value, pointer))
    gpu.after_poll(ctx)
    gpu.barrier(ctx)
    return uniform(ctx, seen)


@jit
def test(
    ctx: tl.tensor,
    routine: tl.constexpr,
    argument: tl.constexpr,
    pointer: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> tl.tensor:
    """Whether the word compares so now, as an acquire."""
    check_waited(routine, argument, pointer, cmp)
    return holds(fetched(ctx, pointer), cmp, fit(routine, "value", value, pointer))
