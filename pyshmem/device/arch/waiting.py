"""Waits on GPUs: for one word, or a word of each member. Each has ctx's limit by the clock, and leaves a record after it."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch import blocks
from pyshmem.device.arch import instructions as gpu
from pyshmem.runtime import timeouts


@triton.jit
def holds(seen: tl.tensor, cmp: tl.constexpr, wanted: tl.tensor) -> tl.tensor:
    """CMP_EQ ... CMP_LE, with the operands' signedness."""
    if cmp == 0:  # noqa: SIM116  Triton compiles no dictionary
        return seen == wanted
    elif cmp == 1:
        return seen != wanted
    elif cmp == 2:
        return seen > wanted
    elif cmp == 3:
        return seen >= wanted
    elif cmp == 4:
        return seen < wanted
    else:
        return seen <= wanted


@triton.jit
def wait_until(
    ctx: tl.tensor, routine: tl.constexpr, pointer: tl.tensor, cmp: tl.constexpr, wanted: tl.tensor
) -> tl.tensor:
    """Poll until the word compares so, or the limit is over; the value seen last. No barrier, no acquire but the polls'."""
    seen = gpu.poll(ctx, pointer)
    waiting = not holds(seen, cmp, wanted)
    polls = 0
    start = blocks.number(0, tl.int64)
    while waiting:
        gpu.pause(ctx)
        seen = gpu.poll(ctx, pointer)
        waiting = not holds(seen, cmp, wanted)
        polls += 1
        if polls == 1024:  # a look at the clock, and at the record, in under a millisecond
            polls = 0
            now = gpu.nanoseconds(ctx)
            start = tl.where(start == 0, now, start)
            over = is_over(ctx, now - start)
            if waiting & over:
                unsigned: tl.constexpr = pointer.dtype.element_ty.is_int_unsigned()
                offset = pointer.to(tl.int64) - ctx.base
                leave_record(ctx, routine, offset, cmp, wanted.to(tl.int64), seen.to(tl.int64), unsigned, 0)
            waiting = waiting & (not over)
    return seen


@triton.jit
def wait_for(
    ctx: tl.tensor, routine: tl.constexpr, flags: tl.tensor, wanted: tl.tensor, pe: tl.tensor, mask: tl.tensor
) -> None:
    """Poll a flag a thread until all in the mask have come to it, or the limit is over. All threads go on together."""
    seen = gpu.poll(ctx, flags)
    waiting = tl.max((mask & (seen < wanted)).to(tl.int32), axis=0) != 0
    polls = 0
    start = blocks.number(0, tl.int64)
    while waiting:
        seen = gpu.poll(ctx, flags)
        missing = mask & (seen < wanted)
        waiting = tl.max(missing.to(tl.int32), axis=0) != 0
        polls += 1
        if polls == 1024:
            polls = 0
            now = gpu.nanoseconds(ctx)
            start = tl.where(start == 0, now, start)
            over = tl.max(missing.to(tl.int32) * is_over(ctx, now - start).to(tl.int32), axis=0) != 0
            if over:
                leave_record(ctx, routine, 0, 3, wanted, seen, False, tl.where(missing, pe, -1))
            waiting = waiting & (not over)


@triton.jit
def is_over(ctx: tl.tensor, elapsed: tl.tensor) -> tl.tensor:
    """Whether a wait of so many nanoseconds gives up: by ctx's limit, or because an earlier one did."""
    over = (ctx.limit > 0) & (elapsed > ctx.limit)
    if ctx.record != 0:
        over = over | (gpu.peek(ctx, ctx.record.to(tl.pointer_type(tl.int64))) != 0)
    return over


@triton.jit
def leave_record(
    ctx: tl.tensor,
    routine: tl.constexpr,
    offset: tl.tensor,
    sign: tl.constexpr,
    wanted: tl.tensor,
    seen: tl.tensor,
    unsigned: tl.constexpr,
    missing: tl.tensor,
) -> None:
    """Fill the record if this is the first to give up; its words are pyshmem.runtime.timeouts's.

    Threads come here as they give up, alone or together: one of them claims the record, and no barrier is met.
    """
    if ctx.record != 0:
        lane = blocks.zeros(gpu.threads(ctx), tl.int64)
        words = ctx.record.to(tl.pointer_type(tl.int64)) + lane
        claimed = tl.atomic_xchg(words + timeouts.CLAIM, lane + 1, mask=lane + missing >= 0, sem="relaxed", scope="sys")
        mine = (claimed == 0) & (lane + missing >= 0)
        tl.store(words + timeouts.PE, lane + (ctx.me - 3) // 2, mask=mine)
        tl.store(words + timeouts.OFFSET, lane + offset, mask=mine)
        tl.store(words + timeouts.SIGN, lane + sign, mask=mine)
        tl.store(words + timeouts.WANTED, lane + wanted, mask=mine)
        tl.store(words + timeouts.SEEN, lane + seen, mask=mine)
        tl.store(words + timeouts.UNSIGNED, lane + unsigned, mask=mine)
        tl.store(words + timeouts.MISSING, lane + missing, mask=mine)
        tl.store(words + timeouts.LIMIT, lane + ctx.limit, mask=mine)
        gpu.drain(ctx)
        gpu.release(ctx)
        tl.atomic_xchg(words + timeouts.ROUTINE, lane + code_of(routine), mask=mine, sem="relaxed", scope="sys")


@triton.constexpr_function
def code_of(routine: str) -> int:
    """The record's word for a routine."""
    return timeouts.CODES[routine]
