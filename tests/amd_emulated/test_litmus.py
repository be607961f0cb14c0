"""The litmus shapes of memory models, of the device functions, between GPUs and between programs of one GPU.

Instructions alternate at random, stores and loads are as late as they may be. What the order of the functions forbids is
never seen; without that order it is seen, so the shape shows what the order is for.
"""

import random

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import triton
import triton.language as tl
from together import Machine

TURNS, MOST = 120, 2000
N = tl.constexpr(64)  # a word a lane, so that accesses are the vector unit's
X, Y = tl.constexpr(0), tl.constexpr(128)  # where the words of two variables are


@triton.jit
def role(ctx, AGENT: tl.constexpr):
    return tl.program_id(0) if AGENT else dev.my_pe(ctx)


@triton.jit
def home(pe, AGENT: tl.constexpr):
    """The PE in whose heap the words of a program are."""
    return 0 if AGENT else pe


@triton.jit
def note(seen, me, first, second):
    tl.store(seen + 2 * me, tl.min(first))
    tl.store(seen + 2 * me + 1, tl.min(second))


@triton.jit
def message_passing(ctx, heap, seen, kept, ORDERED: tl.constexpr, AGENT: tl.constexpr):
    """0: data, fence, flag.  1: flag, data, which it has read before."""
    SCOPE: tl.constexpr = "gpu" if AGENT else "sys"
    lane, there = tl.arange(0, N), home(1, AGENT)
    data, flag = heap + X + lane, heap + Y + lane
    if role(ctx, AGENT) == 0:
        dev.store(ctx, data, 1, there)
        if ORDERED:
            dev.fence(ctx)
        dev.atomic_set(ctx, flag, 1, there, None, "relaxed", SCOPE)
    else:
        tl.store(kept + lane, dev.load(ctx, data, there))
        first = dev.atomic_fetch(ctx, flag, there, None, "acquire" if ORDERED else "relaxed", SCOPE)
        note(seen, 1, first, dev.load(ctx, data, there))


@triton.jit
def store_buffering(ctx, heap, seen, kept, ORDERED: tl.constexpr, AGENT: tl.constexpr):
    """Each of two stores to words of the other one, and reads its own, with a quiet between."""
    me, lane = role(ctx, AGENT), tl.arange(0, N)
    dev.store(ctx, heap + tl.where(me == 0, Y, X) + lane, 1, home(1 - me, AGENT))
    if ORDERED:
        dev.quiet(ctx)
    found = dev.load(ctx, heap + tl.where(me == 0, X, Y) + lane, home(me, AGENT))
    note(seen, me, found, found)


@triton.jit
def load_buffering(ctx, heap, seen, kept, ORDERED: tl.constexpr, AGENT: tl.constexpr):
    """Each of two reads its own words, and then stores to those of the other one, with a fence between."""
    me, lane = role(ctx, AGENT), tl.arange(0, N)
    found = dev.load(ctx, heap + tl.where(me == 0, X, Y) + lane, home(me, AGENT))
    if ORDERED:
        dev.fence(ctx)
    dev.store(ctx, heap + tl.where(me == 0, Y, X) + lane, 1, home(1 - me, AGENT))
    note(seen, me, found, found)


@triton.jit
def independent_reads(ctx, heap, seen, kept, ORDERED: tl.constexpr, AGENT: tl.constexpr):
    """0 and 1 write words of their own; 2 and 3 read both in opposite orders, the second ones once more."""
    SCOPE: tl.constexpr = "gpu" if AGENT else "sys"
    me, lane = role(ctx, AGENT), tl.arange(0, N)
    if me < 2:
        dev.atomic_set(ctx, heap + tl.where(me == 0, X, Y) + lane, 1, home(2 + me, AGENT), None, "relaxed", SCOPE)
    else:
        one, other = heap + tl.where(me == 2, X, Y) + lane, heap + tl.where(me == 2, Y, X) + lane
        tl.store(kept + 64 * me + lane, dev.load(ctx, other, home(5 - me, AGENT)))
        first = dev.atomic_fetch(ctx, one, home(me, AGENT), None, "acquire" if ORDERED else "relaxed", SCOPE)
        note(seen, me, first, dev.load(ctx, other, home(5 - me, AGENT)))


SHAPES = {  # programs, and whether an outcome is the one that the order forbids
    message_passing: (2, lambda seen: seen[1] == (1, 0)),
    store_buffering: (2, lambda seen: seen[0][0] == seen[1][0] == 0),
    load_buffering: (2, lambda seen: seen[0][0] == seen[1][0] == 1),
    independent_reads: (4, lambda seen: seen[2] == seen[3] == (1, 0)),
}


@pytest.mark.parametrize("agent", [False, True], ids=["system", "agent"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.fn.__name__)
def test_what_the_order_forbids_is_seen_without_the_order_alone(shape, agent, amd):
    agents, forbidden = SHAPES[shape]
    chance = random.Random(f"{shape.fn.__name__} {agent} {shmem.my_pe()}")
    machine = Machine(amd, agents, agent, chance)
    ordered = machine.outcomes(shape, (True, agent), TURNS)
    assert len(ordered) > 1 and not [seen for seen in ordered if forbidden(seen)]
    free = machine.outcomes(shape, (False, agent), MOST, until=forbidden)
    assert any(map(forbidden, free)), free
