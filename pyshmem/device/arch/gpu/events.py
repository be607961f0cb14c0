"""Events of compiled kernels: what a program did and when, in a ring that the host reads after the kernels.

The ring is a word that counts the events, then, from EVENTS_HEAD on, event_t of native/trace/file.h, which one thread of the
program writes. It takes the event's place as the call begins, so that the latency of the atomic passes during the
call. An event beyond the ring is only counted. Without a ring, where ctx.events is 0, these functions compile to nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu import blocks
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.checks import check_waited
from pyshmem.device.arch.gpu.translation import is_scalar
from pyshmem.device.arch.gpu.values import decoded
from pyshmem.device.arch.rules import code_of, kind_of, kind_of_write, size_of, text_of, upper


@triton.jit
def begin_call(ctx, routine: tl.constexpr, pe=None, data=None, nelems=1):
    """Begin the event of a call, with the bytes of ``nelems`` elements of data: a pointer, a tile or a block of pointers."""
    if ctx.events:
        return begin(ctx, code_of(routine), 0, to_world(ctx, pe), nbytes_of(data, nelems), 0, 0, 0)
    else:
        return 0


@triton.jit
def begin_write(ctx, routine: tl.constexpr, op: tl.constexpr, word, value, pe, data, nelems):
    """Begin the event of a call that writes a word: op is "set" or "add". A block of words is not named."""
    if ctx.events:
        kind: tl.constexpr = kind_of_write(op, word)
        if kind == 0:
            return begin_call(ctx, routine, pe, data, nelems)
        else:
            nbytes, place = nbytes_of(data, nelems), word.to(tl.int64) - ctx.base
            return begin(ctx, code_of(routine), kind, to_world(ctx, pe), nbytes, place, value, 0)
    else:
        return 0


@triton.jit
def begin_wait(ctx, routine: tl.constexpr, argument: tl.constexpr, word, cmp: tl.constexpr, value):
    """Begin the event of a wait for one word, with what the word is now. Errors: those of wait."""
    if ctx.events:
        check_waited(routine, argument, word, cmp)
        before = gpu.read(ctx, word).to(tl.int64)
        place = word.to(tl.int64) - ctx.base
        return begin(ctx, code_of(routine), kind_of("wait", cmp), -1, nbytes_of(word, 1), place, value, before)
    else:
        return 0


@triton.jit
def begin_waits(ctx, routine: tl.constexpr, words, nelems, cmp: tl.constexpr, value):
    """Begin the event of a wait for several words, all by one value."""
    if ctx.events:
        nbytes, place = nbytes_of(words, nelems), words.to(tl.int64) - ctx.base
        return begin(ctx, code_of(routine), kind_of("waits", cmp), -1, nbytes, place, value, 0)
    else:
        return 0


@triton.jit
def begin_meeting(ctx, routine: tl.constexpr, data=None, nelems=1):
    """Begin the event of a call that all PEs of the team make."""
    if ctx.events:
        team = wide(decoded(ctx.start)) << 42 | wide(decoded(ctx.step)) << 21 | wide(decoded(ctx.n_pes))
        return begin(ctx, code_of(routine), kind_of("meet", 0), -1, nbytes_of(data, nelems), team, 0, 0)
    else:
        return 0


@triton.jit
def begin_span(ctx, name: tl.constexpr):
    """Begin a span of the program's own, whose name is in the event. Errors: ArgumentError for a wrong name."""
    if ctx.events:
        text: tl.constexpr = text_of(name)
        return begin(ctx, 0, kind_of("span", 0), -1, 0, text[0], text[1], text[2])
    else:
        return 0


@triton.jit
def end_event(ctx, event):
    """Write the event, which ends now."""
    if ctx.events:
        end = gpu.nanoseconds(ctx)
        place, start, words, names = event
        lane = blocks.zeros(gpu.threads(ctx), tl.int64)
        row = (ctx.trace + 64).to(tl.pointer_type(tl.int64)) + place * 8
        mine = (blocks.arange(gpu.threads(ctx)) == 0) & (place < ctx.events)
        tl.store(row, lane + start, mask=mine)
        tl.store(row + 1, lane + end, mask=mine)
        for word in tl.static_range(4):
            tl.store(row + 2 + word, lane + words[word], mask=mine)
        tl.store(row + 6, lane + names[0], mask=mine)
        tl.store(row + 7, lane + names[1], mask=mine)


@triton.jit
def begin(ctx, code: tl.constexpr, kind: tl.constexpr, to, nbytes, place, value, before):
    """Return an event: (its place in the ring, its begin, four words of event_t, and the two that name it)."""
    lane = blocks.zeros(gpu.threads(ctx), tl.int64)
    counter = ctx.trace.to(tl.pointer_type(tl.int64)) + lane
    first = blocks.arange(gpu.threads(ctx)) == 0
    taken = tl.atomic_add(counter, lane + 1, mask=first, sem="relaxed", scope="gpu")
    program = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    where = wide(gpu.multiprocessor(ctx) + 2) << 48
    names = (wide(to) & 0xFFFFFFFF) | upper(code), wide(program) | upper(kind) | where
    return taken, gpu.nanoseconds(ctx), (wide(nbytes), wide(place), wide(value), wide(before)), names


@triton.jit
def to_world(ctx, pe):
    """Return the number in the world of a PE of the team; -1 for None, for a number below 0 and for a block of them."""
    if pe is None or not is_scalar(pe):
        return -1
    else:
        return tl.where(pe < 0, -1, decoded(ctx.start) + pe * decoded(ctx.step))


@triton.jit
def nbytes_of(data, nelems):
    if data is None:
        return 0
    else:
        return wide(nelems) * size_of(data)


@triton.jit
def wide(number):
    return blocks.in_registers(number).to(tl.int64)
