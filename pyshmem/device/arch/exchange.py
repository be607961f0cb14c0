"""Between the members of a team, on GPUs: flags to and from all of them, and words that are flags themselves."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch import blocks, spinning
from pyshmem.device.arch import instructions as gpu
from pyshmem.device.arch.places import is_nvidia
from pyshmem.device.arch.spinning import EDITION
from pyshmem.device.arch.translation import distance
from pyshmem.device.arch.waiting import is_over, leave_record, wait_for
from pyshmem.runtime import areas, timeouts

NUMBERS = tl.constexpr(areas.NUMBERS)


@triton.jit
def meet(ctx: tl.tensor, routine: tl.constexpr) -> None:
    """Tell every member, after all that this program's threads have stored, that it has come the next time; wait for theirs.

    The team's area holds, from NUMBERS on, the number of the barrier that each other member came to last, and before that
    this PE's next one's. They only grow, so nothing is reset and the next barrier may follow at once. The own one is stored
    as it was read, and counted on by an addition, so that no instruction waits for it before the release has begun.
    """
    numbers = ctx.sync_area + NUMBERS
    me = (ctx.me - 3) // 2
    own = numbers.to(tl.pointer_type(tl.int64)) - 1
    number = gpu.peek(ctx, own)
    gpu.drain(ctx)
    gpu.barrier(ctx)  # all threads have read it
    tell_all(ctx, numbers, number, me)
    gpu.add_one(ctx, own)  # before the wait: the next barrier's release would have to wait for it
    await_all(ctx, routine, numbers, number, me)


@triton.jit
def tell_all(ctx: tl.tensor, address: tl.tensor, value: tl.tensor, spared: tl.tensor = -1) -> None:
    """Store ``value`` as this PE's word of the array of int64 at ``address`` on every member but ``spared``.

    Each is a release; a barrier stands before.
    """
    me = (ctx.me - 3) // 2
    count: tl.constexpr = gpu.threads(ctx)
    for first in tl.static_range(0, ctx.members, count):
        pe = first + blocks.arange(count)
        inside = (pe < ctx.n_pes) & (pe != spared)
        there = (address + distance(ctx, pe, inside)).to(tl.pointer_type(tl.int64))
        gpu.store_release_each(ctx, there + me, value + blocks.zeros(count, tl.int64), inside)


@triton.jit
def await_all(
    ctx: tl.tensor, routine: tl.constexpr, address: tl.tensor, value: tl.tensor, spared: tl.tensor = -1
) -> None:
    """Wait as an acquire until the word of each member but ``spared``, of the array here, has come to ``value``."""
    words = address.to(tl.pointer_type(tl.int64))
    count: tl.constexpr = gpu.threads(ctx)
    for first in tl.static_range(0, ctx.members, count):
        lane = first + blocks.arange(count)
        pe = tl.minimum(lane, ctx.n_pes - 1)
        await_flags(ctx, routine, words + pe, value, pe, (lane < ctx.n_pes) & (pe != spared))
    gpu.after_poll(ctx)
    gpu.barrier(ctx)


@triton.jit
def await_flags(
    ctx: tl.tensor, routine: tl.constexpr, flags: tl.tensor, value: tl.tensor, pe: tl.tensor, mask: tl.tensor
) -> None:
    """Poll a flag a thread."""
    if is_nvidia(ctx.where):
        spinning.spin_flags(ctx, routine, flags, value, pe, mask.to(tl.int32), EDITION)
    else:
        wait_for(ctx, routine, flags, value, pe, mask)


@triton.jit
def tell_member(ctx: tl.tensor, address: tl.tensor, value: tl.tensor, pe: tl.tensor) -> None:
    """tell_all to one member."""
    there = (address + distance(ctx, pe)).to(tl.pointer_type(tl.int64)) + (ctx.me - 3) // 2
    gpu.store_release(ctx, there, value)


@triton.jit
def await_member(ctx: tl.tensor, routine: tl.constexpr, address: tl.tensor, value: tl.tensor, pe: tl.tensor) -> None:
    """await_all for the word of one member."""
    pes = pe + blocks.zeros(gpu.threads(ctx), tl.int32)
    flags = address.to(tl.pointer_type(tl.int64)) + pes
    await_flags(ctx, routine, flags, value, pes, blocks.arange(gpu.threads(ctx)) == 0)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)


@triton.jit
def store_words(
    ctx: tl.tensor,
    address: tl.tensor,
    places: tl.tensor,
    later: tl.tensor,
    words: tl.tensor,
    mark: tl.tensor,
    mask: tl.tensor,
) -> None:
    """Store each int32 with the mark as one word of 8 bytes, at its place from ``address``: who sees that mark has both.

    later: bytes to add to all of them, known last, so added last.
    """
    pointers = (address + 8 * places.to(tl.int64)) + later
    gpu.store_marked(ctx, pointers.to(tl.pointer_type(tl.int64)), words, mark.to(tl.int32), mask)


@triton.jit
def await_words(
    ctx: tl.tensor,
    routine: tl.constexpr,
    address: tl.tensor,
    places: tl.tensor,
    mark: tl.tensor,
    mask: tl.tensor,
    count: tl.constexpr,
) -> tl.tensor:
    """Wait for store_words of every member, the first from ``address`` and each a piece further; ``count`` tensors of int32.

    They are of the members 0 ... count - 1, the last member's where there are no more.
    """
    pointers = address.to(tl.pointer_type(tl.int64)) + tl.where(mask, places, 0)
    wanted = mark.to(tl.int32)
    if is_nvidia(ctx.where):
        found = spinning.as_many(wanted + tl.zeros_like(places), count)
        polled = False
        while (
            not polled
        ):  # once: what comes out of a loop is not computed twice, for each layout that Triton wants of it
            found = spinning.spin_words(ctx, routine, pointers, wanted, mask.to(tl.int32), count, EDITION)
            polled = True
    else:
        spin_amd(ctx, routine, pointers, wanted, mask, count)
        found = spinning.load_many(ctx, pointers, count, EDITION)
    gpu.barrier(ctx)  # each thread has seen its own words only
    return spinning.words_of(found, count)


@triton.jit
def spin_amd(
    ctx: tl.tensor,
    routine: tl.constexpr,
    pointers: tl.tensor,
    wanted: tl.tensor,
    mask: tl.tensor,
    count: tl.constexpr,
) -> None:
    """Poll until all marks are there, or the limit is over. Every thread stays until the last has its words."""
    missing = absent(ctx, pointers, wanted, mask, count)
    waiting = tl.max((missing >= 0).to(tl.int32), axis=0) != 0
    polls = 0
    start = blocks.number(0, tl.int64)
    while waiting:
        missing = absent(ctx, pointers, wanted, mask, count)
        waiting = tl.max((missing >= 0).to(tl.int32), axis=0) != 0
        polls += 1
        if polls == 1024:
            polls = 0
            now = gpu.nanoseconds(ctx)
            start = tl.where(start == 0, now, start)
            over = tl.max((missing >= 0).to(tl.int32) * is_over(ctx, now - start).to(tl.int32), axis=0) != 0
            if over:
                leave_record(ctx, routine, 0, 3, wanted, wanted, False, tl.max(missing, axis=0))
            waiting = waiting & (not over)


@triton.jit
def absent(
    ctx: tl.tensor,
    pointers: tl.tensor,
    wanted: tl.tensor,
    mask: tl.tensor,
    count: tl.constexpr,
) -> tl.tensor:
    """Of each lane: a member whose word is not there yet, or -1."""
    found = spinning.load_many(ctx, pointers, count, EDITION)
    missing = tl.full([mask.shape[0]], -1, tl.int32)
    for member in tl.static_range(count):
        there = (found[member] >> 32).to(tl.int32) == wanted
        missing = tl.where(mask & (not there), tl.minimum(member, ctx.n_pes - 1), missing)
    return missing


@triton.jit
def check_slot(ctx: tl.tensor, routine: tl.constexpr, program: tl.tensor) -> tl.tensor:
    """The program's number, or the last that has a slot: then the record says so. -1: calls by one program."""
    if program >= ctx.programs:
        leave_record(ctx, routine, timeouts.NO_SLOT, 4, ctx.programs, program, False, 0)
    return tl.maximum(tl.minimum(program, ctx.programs - 1), 0)
