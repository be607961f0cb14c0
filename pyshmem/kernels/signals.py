"""The kernels of signals on a stream: an update of a signal on any PE, and a wait for the local one.

A value is a number, or is in memory and read when the kernel runs, so that a graph can count its replays.
"""

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch.gpu.atomics import before, behind
from pyshmem.device.arch.targets import between_fences, is_amd, target_of
from pyshmem.device.context import DeviceContext
from pyshmem.kernels.bound_kernels import Bound, bind
from pyshmem.kernels.compiled import CachedKernel
from pyshmem.kernels.on_stream import array_at
from pyshmem.memory.gpu.heap import gpu

WORDS = ["address", "value", "at"]


@triton.jit(do_not_specialize=WORDS)
def update_signal(ctx, address: tl.int64, value: tl.int64, at: tl.int64, ADDS: tl.constexpr):
    """Add to the uint64 at ``address``, or set it, after all that precedes on the stream.

    ctx: a Target.  at: where the value is, or 0.
    """
    sem: tl.constexpr = between_fences(ctx.where, "acq_rel")
    number = value
    if at != 0:
        number = tl.load(array_at(at, tl.int64))
    word = array_at(address, tl.int64)
    if is_amd(ctx.where):
        before(ctx, "acq_rel")
    if ADDS:
        tl.atomic_add(word, number, sem=sem, scope="sys")
    else:
        tl.atomic_xchg(word, number, sem=sem, scope="sys")
    if is_amd(ctx.where):
        behind(ctx, "acq_rel")


@triton.jit(do_not_specialize=WORDS)
def await_signal(ctx, address: tl.int64, value: tl.int64, at: tl.int64, CMP: tl.constexpr):
    """Wait until the comparison with the local uint64 at ``address`` is true, as an acquire."""
    number = value
    if at != 0:
        number = tl.load(array_at(at, tl.int64))
    signal = array_at(address, tl.uint64)
    arch.wait(ctx, "signal_wait_until_on_stream", "signal", signal, CMP, number.to(tl.uint64))


_cached = cache(CachedKernel)


def update(adds: bool) -> Bound:
    target = target_of(gpu.arch)
    return bind(_cached(update_signal).find(target, 0, 0, 0, adds, num_warps=1), (1,), (target,), 3)


def wait(context: DeviceContext, cmp: int) -> Bound:
    return bind(_cached(await_signal).find(context, 0, 0, 0, cmp, num_warps=1), (1,), (context,), 3)
