"""Flags between the members of a team, on GPUs: each member owns a word in an array on every other. Flags only grow."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base import comparisons, kernel_timeouts
from pyshmem.device.arch.gpu import blocks, reaching, requests, spinning
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.polling import poll_until
from pyshmem.device.arch.gpu.record import leave_record
from pyshmem.device.arch.gpu.spinning import EDITION
from pyshmem.device.arch.gpu.translation import distance
from pyshmem.device.arch.gpu.values import decoded
from pyshmem.device.arch.targets import is_direct, is_nvidia
from pyshmem.memory import areas

NUMBERS = tl.constexpr(areas.NUMBERS)


@triton.jit
def synchronise(ctx, routine: tl.constexpr):
    """Execute a barrier over ctx's team, after all earlier stores of this program's threads.

    From NUMBERS on, the team's area holds the number of the last barrier that each other member has entered. The word
    before them holds the number of this PE's next barrier. Numbers only grow: none needs a reset, and the next barrier may
    follow at once. This PE's number is sent as it was read and incremented separately, by an atomic addition, so that no
    instruction waits for its load before the release begins.
    """
    if not is_direct(ctx.reach):
        reaching.quiet(ctx)  # a request to one member does not order those to the others
    numbers = ctx.sync_area + NUMBERS
    me = decoded(ctx.me)
    own = numbers.to(tl.pointer_type(tl.int64)) - 1
    number = gpu.peek(ctx, own)
    gpu.drain(ctx)
    gpu.barrier(ctx)  # all threads have read the number
    tell_all(ctx, numbers, number, me)
    gpu.add_one(ctx, own)  # before the wait, so that the release of the next barrier need not wait for it
    await_all(ctx, routine, numbers, number, me)


@triton.jit
def tell_all(ctx, address, value, spared=-1):
    """Store ``value`` to this PE's word of the int64 array at ``address``, on every member except ``spared``.

    Each store is a release. The caller executes a barrier of the program's threads first.
    """
    me = decoded(ctx.me)
    count: tl.constexpr = gpu.threads(ctx)
    for first in tl.static_range(0, ctx.members, count):
        pe = first + blocks.arange(count)
        inside = (pe < decoded(ctx.n_pes)) & (pe != spared)
        there = address + distance(ctx, pe, inside)
        if not is_direct(ctx.reach):
            inside = inside & ~requests.is_place(there)
        words = there.to(tl.pointer_type(tl.int64))
        gpu.store_release_each(ctx, words + me, value + blocks.zeros(count, tl.int64), inside)
    if not is_direct(ctx.reach):
        for member in range(decoded(ctx.n_pes)):
            tell_far(ctx, address + distance(ctx, member), value)


@triton.jit
def tell_far(ctx, there, value):
    """Store ``value`` to this PE's word of the array at ``there``, if that is on a far PE."""
    if requests.is_place(there):
        requests.update(ctx, "set", "int64", there + 8 * decoded(ctx.me), value)


@triton.jit
def await_all(ctx, routine: tl.constexpr, address, value, spared=-1):
    """Wait until each member's word of the local array, except ``spared``'s, is at least ``value``. It is an acquire."""
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
    """Poll one flag per thread."""
    if is_nvidia(ctx.where):
        spinning.spin_flags(ctx, routine, flags, value, pe, mask.to(tl.int32), EDITION)
    else:
        wait_for(ctx, routine, flags, value, pe, mask)


@triton.jit
def wait_for(ctx, routine: tl.constexpr, flags, wanted, pe, mask):
    """AMD: poll one flag per thread until all flags in the mask are at least ``wanted``, or the wait times out."""
    found, waiting = look(ctx, None, None, flags, wanted, pe, mask)
    poll_until(ctx, routine, look, stop, False, None, found, waiting, (flags, wanted, pe, mask))


@triton.jit
def look(ctx, option: tl.constexpr, found, flags, wanted, pe, mask):
    """All threads wait while a flag of any thread is missing, so that they leave the loop together."""
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
    """Do what tell_all does, for one member."""
    there = address + distance(ctx, pe)
    if is_direct(ctx.reach):
        gpu.store_release(ctx, there.to(tl.pointer_type(tl.int64)) + decoded(ctx.me), value)
    elif requests.is_place(there):
        tell_far(ctx, there, value)
    else:
        gpu.store_release(ctx, there.to(tl.pointer_type(tl.int64)) + decoded(ctx.me), value)


@triton.jit
def await_member(ctx, routine: tl.constexpr, address, value, pe):
    """Do what await_all does, for the word of one member."""
    pes = pe + blocks.zeros(gpu.threads(ctx), tl.int32)
    flags = address.to(tl.pointer_type(tl.int64)) + pes
    await_flags(ctx, routine, flags, value, pes, blocks.arange(gpu.threads(ctx)) == 0)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)


@triton.jit
def check_slot(ctx, routine: tl.constexpr, program):
    """Return the program's number, or write a record and return the last number that has a slot.

    program: -1 for calls by one program.
    """
    programs = decoded(ctx.slots) - 1
    if program >= programs:
        leave_record(ctx, routine, kernel_timeouts.NO_SLOT, comparisons.LT, programs, program, False, 0)
    return tl.maximum(tl.minimum(program, programs - 1), 0)
