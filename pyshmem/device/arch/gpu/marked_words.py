"""Words of 4 bytes that are stored together with a mark of 4 bytes, on GPUs. A reader that sees the mark has the word."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base import comparisons
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu import spinning
from pyshmem.device.arch.gpu.polling import poll_until
from pyshmem.device.arch.gpu.record import leave_record
from pyshmem.device.arch.gpu.spinning import EDITION
from pyshmem.device.arch.gpu.values import decoded
from pyshmem.device.arch.targets import is_nvidia


@triton.jit
def store_words(ctx, address, places, later, words, mark, mask):
    """Store each int32 together with the mark, as one word of 8 bytes, to its place behind ``address``.

    later: a byte offset of all places. It is added last because its load completes last.
    """
    pointers = (address + 8 * places.to(tl.int64)) + later
    gpu.store_marked(ctx, pointers.to(tl.pointer_type(tl.int64)), words, mark.to(tl.int32), mask)


@triton.jit
def await_words(ctx, routine: tl.constexpr, address, places, mark, mask, count: tl.constexpr):
    """Wait for the words that every member stores by store_words, the first member's at ``address``, then one piece apart.

    Returns: ``count`` tensors of int32, from members 0 ... count - 1. Those behind the last member repeat its words.
    """
    pointers = address.to(tl.pointer_type(tl.int64)) + tl.where(mask, places, 0)
    wanted = mark.to(tl.int32)
    if is_nvidia(ctx.where):
        found = spinning.as_many(wanted + places * 0, count)
        last = decoded(ctx.n_pes) - 1
        polled = False
        # A loop of one iteration: Triton recomputes an expression for each layout that it needs, but not a loop's result.
        while not polled:
            found = spinning.spin_words(ctx, routine, pointers, last, wanted, mask.to(tl.int32), count, EDITION)
            polled = True
    else:
        spin_amd(ctx, routine, pointers, wanted, mask, count)
        found = spinning.load_many(ctx, pointers, decoded(ctx.n_pes) - 1, count, EDITION)
    gpu.barrier(ctx)  # each thread has seen its own words only
    return spinning.words_of(found, count)


@triton.jit
def await_parts(ctx, routine: tl.constexpr, address, place, most, mark, count: tl.constexpr, parts: tl.constexpr):
    """await_words of ``parts`` words a thread, whose latencies overlap: part k is k blocks behind ``place``.

    most: the last place that is sent; places behind it get its word. The caller executes the barrier that it needs.
    Returns: a tuple for each part, of ``count`` tensors.
    """
    width: tl.constexpr = place.shape[0]
    group: tl.constexpr = polled_at_once(count)
    found = ()
    if is_nvidia(ctx.where):
        for first in tl.static_range(0, parts, group):
            found = found + spin_group(ctx, routine, address, place + first * width, most, mark, count, parts - first)
    else:
        for part in tl.static_range(parts):
            places = tl.minimum(place + part * width, most)
            found = found + (await_words(ctx, routine, address, places, mark, place >= 0, count),)
    return found


@triton.jit
def spin_group(ctx, routine: tl.constexpr, address, place, most, mark, count: tl.constexpr, left: tl.constexpr):
    """NVIDIA: as many of the ``left`` parts as are polled at once."""
    width: tl.constexpr = place.shape[0]
    wanted, last = mark.to(tl.int32), decoded(ctx.n_pes) - 1
    pointers = ()
    for part in tl.static_range(polled_at_once(count)):
        if part < left:
            pointers = pointers + (address.to(tl.pointer_type(tl.int64)) + tl.minimum(place + part * width, most),)
    found = spinning.as_many(wanted + tl.zeros_like(place), count * len(pointers))
    polled = False
    while not polled:  # one iteration, as in await_words
        found = spinning.spin_parts(ctx, routine, pointers, last, wanted, (place >= 0).to(tl.int32), count, EDITION)
        polled = True
    return spinning.by_part(found, count)


@triton.constexpr_function
def polled_at_once(count: int) -> int:
    """Return how many parts of ``count`` members' words a thread has registers to poll at once."""
    return max(8 // count, 1)


@triton.jit
def spin_amd(ctx, routine: tl.constexpr, pointers, wanted, mask, count: tl.constexpr):
    """Poll until all marks have arrived or the wait times out."""
    missing, waiting = look(ctx, count, None, pointers, wanted, mask)
    poll_until(ctx, routine, look, stop, False, count, missing, waiting, (pointers, wanted, mask))


@triton.jit
def look(ctx, count: tl.constexpr, found, pointers, wanted, mask):
    """All threads wait while a word of any thread is missing, so that they leave the loop together."""
    missing = absent(ctx, pointers, wanted, mask, count)
    return missing, tl.max((missing >= 0).to(tl.int32), axis=0) != 0


@triton.jit
def stop(ctx, routine: tl.constexpr, count: tl.constexpr, missing, waiting, expired, pointers, wanted, mask):
    over = tl.max((missing >= 0).to(tl.int32) * expired.to(tl.int32), axis=0) != 0
    if over:
        leave_record(ctx, routine, 0, comparisons.GE, wanted, wanted, False, tl.max(missing, axis=0))
    return over


@triton.jit
def absent(ctx, pointers, wanted, mask, count: tl.constexpr):
    """Return for each lane a member whose word has not arrived yet, or -1."""
    found = spinning.load_many(ctx, pointers, decoded(ctx.n_pes) - 1, count, EDITION)
    missing = mask.to(tl.int32) * 0 - 1
    for member in tl.static_range(count):
        there = (found[member] >> 32).to(tl.int32) == wanted
        missing = tl.where(mask & (not there), tl.minimum(member, decoded(ctx.n_pes) - 1), missing)
    return missing
