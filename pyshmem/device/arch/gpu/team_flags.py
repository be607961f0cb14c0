"""Flags between the members of a team, on GPUs: each member has a word in an array on every other, which only grows."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu import blocks, spinning
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.polling import poll_until
from pyshmem.device.arch.gpu.record import leave_record
from pyshmem.device.arch.gpu.spinning import EDITION
from pyshmem.device.arch.gpu.translation import distance
from pyshmem.device.arch.gpu.values import decoded
from pyshmem.device.arch.targets import is_nvidia
from pyshmem.runtime import areas, comparisons, timeouts

NUMBERS = tl.constexpr(areas.NUMBERS)


@triton.jit
def synchronise(ctx, routine: tl.constexpr):
    """The barrier of ctx's team, after all that this program's threads have stored: tell every member, wait for each.

    The team's area holds, from NUMBERS on, the number of the barrier that each other member came to last, and before that
    this PE's next one's. They only grow, so nothing is reset and the next barrier may follow at once. The own one is stored
    as it was read, and counted on by an addition, so that no instruction waits for it before the release has begun.
    """
    numbers = ctx.sync_area + NUMBERS
    me = decoded(ctx.me)
    own = numbers.to(tl.pointer_type(tl.int64)) - 1
    number = gpu.peek(ctx, own)
    gpu.drain(ctx)
    gpu.barrier(ctx)  # all threads have read it
    tell_all(ctx, numbers, number, me)
    gpu.add_one(ctx, own)  # before the wait: the next barrier's release would have to wait for it
    await_all(ctx, routine, numbers, number, me)


@triton.jit
def tell_all(ctx, address, value, spared=-1):
    """Store ``value`` as this PE's word of the array of int64 at ``address`` on every member but ``spared``.

    Each is a release; a barrier stands before.
    """
    me = decoded(ctx.me)
    count: tl.constexpr = gpu.threads(ctx)
    for first in tl.static_range(0, ctx.members, count):
        pe = first + blocks.arange(count)
        inside = (pe < decoded(ctx.n_pes)) & (pe != spared)
        there = (address + distance(ctx, pe, inside)).to(tl.pointer_type(tl.int64))
        gpu.store_release_each(ctx, there + me, value + blocks.zeros(count, tl.int64), inside)


@triton.jit
def await_all(ctx, routine: tl.constexpr, address, value, spared=-1):
    """Wait as an acquire until the word of each member but ``spared``, of the array here, has come to ``value``."""
    words = address.to(tl.pointer_type(tl.int64))
    count: tl.constexpr = gpu.threads(ctx)
    for first in tl.static_range(0, ctx.members, count):
        lane = first + blocks.arange(count)
        pe = tl.minimum(lane, decoded(ctx.n_pes) - 1)
        await_flags(ctx, routine, words + pe, value, pe, (lane < decoded(ctx.n_pes)) & (pe != spared))
    gpu.after_poll(ctx)
    gpu.barrier(ctx)


@triton.jit
def await_flags(ctx, routine: tl.constexpr, flags, value, pe, mask):
    """Poll a flag a thread."""
    if is_nvidia(ctx.where):
        spinning.spin_flags(ctx, routine, flags, value, pe, mask.to(tl.int32), EDITION)
    else:
        wait_for(ctx, routine, flags, value, pe, mask)


@triton.jit
def wait_for(ctx, routine: tl.constexpr, flags, wanted, pe, mask):
    """AMD: each thread polls one flag until all flags in the mask have reached ``wanted``, or ctx's limit is over."""
    found, waiting = look(ctx, None, None, flags, wanted, pe, mask)
    poll_until(ctx, routine, look, stop, False, None, found, waiting, (flags, wanted, pe, mask))


@triton.jit
def look(ctx, option: tl.constexpr, found, flags, wanted, pe, mask):
    """All threads wait as long as one flag is missing, so that they leave the loop together."""
    seen = gpu.poll(ctx, flags)
    missing = mask & (seen < wanted)
    return (seen, missing), tl.max(missing.to(tl.int32), axis=0) != 0


@triton.jit
def stop(ctx, routine: tl.constexpr, option: tl.constexpr, found, waiting, expired, flags, wanted, pe, mask):
    seen, missing = found
    over = tl.max(missing.to(tl.int32) * expired.to(tl.int32), axis=0) != 0
    if over:
        leave_record(ctx, routine, 0, comparisons.GE, wanted, seen, False, tl.where(missing, pe, -1))
    return over


@triton.jit
def tell_member(ctx, address, value, pe):
    """tell_all to one member."""
    there = (address + distance(ctx, pe)).to(tl.pointer_type(tl.int64)) + decoded(ctx.me)
    gpu.store_release(ctx, there, value)


@triton.jit
def await_member(ctx, routine: tl.constexpr, address, value, pe):
    """await_all for the word of one member."""
    pes = pe + blocks.zeros(gpu.threads(ctx), tl.int32)
    flags = address.to(tl.pointer_type(tl.int64)) + pes
    await_flags(ctx, routine, flags, value, pes, blocks.arange(gpu.threads(ctx)) == 0)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)


@triton.jit
def check_slot(ctx, routine: tl.constexpr, program):
    """The program's number, or the last that has a slot: then the record says so. -1: calls by one program."""
    programs = decoded(ctx.slots) - 1
    if program >= programs:
        leave_record(ctx, routine, timeouts.NO_SLOT, comparisons.LT, programs, program, False, 0)
    return tl.maximum(tl.minimum(program, programs - 1), 0)
