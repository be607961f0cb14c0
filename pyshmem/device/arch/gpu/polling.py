"""The loop in which waits poll memory on GPUs, with its clock.

On NVIDIA, waits for a team's flags and for marked words have another loop: spinning writes it in inline instructions, where
each thread polls by itself. Triton's own loops have one condition for all threads.
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
    """Poll until ``look`` ends the wait, or ``stop`` does by a timeout. Returns: the last result of ``look``.

    look(ctx, option, found, *operands): polls once. It takes the last poll's result, and returns its own and whether to
        continue.
    stop(ctx, routine, option, found, waiting, expired, *operands): runs after every 1024 polls, which take one to three
        milliseconds. It returns whether the wait has timed out, and writes the record in that case.
    pausing: whether to pause before each poll.  option: a constant for look and stop.
    operands: a tuple of tensors and None. Triton 3.6 cannot pass text in a tuple, so routine is a parameter.
    found, waiting: the results of the first poll, which the caller executes.
    """
    polls = 0
    start = blocks.number(0, tl.int64)
    while waiting:
        if pausing:
            gpu.pause(ctx, polls)
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
    """Return whether a wait of ``elapsed`` nanoseconds times out: it exceeds ctx's limit, or another wait has timed out."""
    over = (ctx.limit > 0) & (elapsed > ctx.limit)
    if ctx.record != 0:
        over = over | (gpu.peek(ctx, ctx.record.to(tl.pointer_type(tl.int64))) != 0)
    return over
