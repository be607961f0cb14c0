"""The loop in which a wait polls memory on GPUs, and its clock.

NVIDIA's waits for a team's flags and for marked words do not use it: spinning has theirs, as inline instructions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu import blocks
from pyshmem.device.arch.gpu import instructions as gpu


@triton.jit
def poll_until(
    ctx,
    routine: tl.constexpr,
    look: tl.constexpr,
    stop: tl.constexpr,
    pausing: tl.constexpr,
    option: tl.constexpr,
    found,
    waiting,
    operands,
):
    """Poll until ``look`` ends the wait, or ``stop`` does because it takes too long. Returns: what ``look`` found last.

    look(ctx, option, found, *operands): polls once. It takes what the last poll found, and returns what it finds and
        whether the wait goes on.
    stop(ctx, routine, option, found, waiting, expired, *operands): is called after every 1024 polls, which take less than
        a millisecond. It returns whether the wait ends, by ``expired``, and leaves a record if it does.
    pausing: whether to pause before each poll.  option: a constant for look and stop.  operands: a tuple without text.
    found, waiting: the results of the first poll, which the caller makes.
    """
    polls = 0
    start = blocks.number(0, tl.int64)
    while waiting:
        if pausing:
            gpu.pause(ctx)
        found, waiting = look(ctx, option, found, *operands)
        polls += 1
        if polls == 1024:
            polls = 0
            now = gpu.nanoseconds(ctx)
            start = tl.where(start == 0, now, start)
            over = stop(ctx, routine, option, found, waiting, has_expired(ctx, now - start), *operands)
            waiting = waiting & (not over)
    return found


@triton.jit
def has_expired(ctx, elapsed):
    """Whether a wait of ``elapsed`` nanoseconds must give up: it exceeds ctx's limit, or another wait has given up."""
    over = (ctx.limit > 0) & (elapsed > ctx.limit)
    if ctx.record != 0:
        over = over | (gpu.peek(ctx, ctx.record.to(tl.pointer_type(tl.int64))) != 0)
    return over
