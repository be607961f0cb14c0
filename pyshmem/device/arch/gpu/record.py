"""The record of a wait on GPUs that has timed out. pyshmem.base.kernel_timeouts defines its words."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base import kernel_timeouts
from pyshmem.device.arch.gpu import blocks
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.values import decoded


@triton.jit
def leave_record(
    ctx,
    routine: tl.constexpr,
    offset,
    sign: tl.constexpr,
    wanted,
    seen,
    unsigned: tl.constexpr,
    missing,
    names_team: tl.constexpr = True,
):
    """Fill the record if this is the first wait that has timed out.

    names_team: whether AREA is filled: of collectives. A loop around the wait needs a register more for it.
    Threads call it when they time out, alone or together. One of them claims the record; there is no barrier.
    """
    if ctx.record != 0:
        lane = blocks.zeros(gpu.threads(ctx), tl.int64)
        words = ctx.record.to(tl.pointer_type(tl.int64)) + lane
        claimed = tl.atomic_xchg(
            words + kernel_timeouts.CLAIM, lane + 1, mask=lane + missing >= 0, sem="relaxed", scope="sys"
        )
        mine = (claimed == 0) & (lane + missing >= 0)
        tl.store(words + kernel_timeouts.PE, lane + decoded(ctx.me), mask=mine)
        tl.store(words + kernel_timeouts.OFFSET, lane + offset, mask=mine)
        tl.store(words + kernel_timeouts.SIGN, lane + sign, mask=mine)
        tl.store(words + kernel_timeouts.WANTED, lane + wanted, mask=mine)
        tl.store(words + kernel_timeouts.SEEN, lane + seen, mask=mine)
        tl.store(words + kernel_timeouts.UNSIGNED, lane + unsigned, mask=mine)
        tl.store(words + kernel_timeouts.MISSING, lane + missing, mask=mine)
        tl.store(words + kernel_timeouts.LIMIT, lane + ctx.limit, mask=mine)
        if names_team:
            tl.store(words + kernel_timeouts.AREA, lane + ctx.sync_area, mask=mine)
        gpu.drain(ctx)
        gpu.release(ctx)
        tl.atomic_xchg(words + kernel_timeouts.ROUTINE, lane + code_of(routine), mask=mine, sem="relaxed", scope="sys")


@triton.constexpr_function
def code_of(routine: str) -> int:
    """Return the code of a routine in the record."""
    return kernel_timeouts.CODES[routine]
