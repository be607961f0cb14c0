"""The litmus tests of a memory model, in kernels: what no order of the accesses allows is never seen.

Every turn has words of its own, and begins with a barrier, so that the accesses meet. Many thousand turns where kernels are
compiled; interpreted ones keep the order of a CPU, which Python's own work between two accesses makes strong.
"""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.base import interpreter
from support import neighbours

pytestmark = pytest.mark.usefixtures("beside_the_heap")
TURNS = 100 if interpreter.active() else 20_000
PAYLOAD = 512  # elements
two = pytest.mark.skipif(shmem.n_pes() < 2, reason="takes 2 PEs")
four = pytest.mark.skipif(shmem.n_pes() < 4, reason="takes 4 PEs")


def words(count=1):
    """Arrays of a word for each turn, and one of what this PE has seen."""
    return [shmem.zeros(TURNS, dtype=torch.int64) for _ in range(count)], torch.full((TURNS,), -1, dtype=torch.int64)


@triton.jit
def pass_message(ctx, data, flag, seen, turns):
    """Data, fence, flag; wait for the flag, data."""
    me = dev.my_pe(ctx)
    for turn in range(turns):
        dev.sync_all(ctx)
        if me == 0:
            dev.p(ctx, data + turn, turn + 7, 1)
            dev.fence(ctx)
            dev.p(ctx, flag + turn, 1, 1)
        if me == 1:
            dev.wait_until(ctx, flag + turn, dev.CMP_EQ, 1)
            tl.store(seen + turn, dev.g(ctx, data + turn, 1))


@two
def test_message_passing_who_sees_the_flag_sees_the_data(me):
    (data, flag), seen = words(2)
    pass_message[(1,)](shmem.device_context(), data, flag, seen, TURNS)
    if me == 1:
        assert torch.equal(seen, torch.arange(TURNS) + 7)


@triton.jit
def store_then_load(ctx, word, seen, turns):
    """Each of PEs 0 and 1 writes the other's word and reads its own, with a quiet between."""
    me = dev.my_pe(ctx)
    for turn in range(turns):
        dev.sync_all(ctx)
        if me < 2:
            dev.p(ctx, word + turn, 1, 1 - me)  # check: ignore, whether it has come is the question
            dev.quiet(ctx)
            tl.store(seen + turn, dev.atomic_fetch(ctx, word + turn, me))


@two
def test_store_buffering_one_of_two_sees_the_others_store(me, npes):
    (word,), seen = words()
    store_then_load[(1,)](shmem.device_context(), word, seen, TURNS)
    both = gathered(seen)
    assert (both[0] + both[1] >= 1).all()


@triton.jit
def load_then_store(ctx, word, seen, turns):
    """Each of PEs 0 and 1 reads its own word and then writes the other's."""
    me = dev.my_pe(ctx)
    for turn in range(turns):
        dev.sync_all(ctx)
        if me < 2:
            found = dev.atomic_fetch(ctx, word + turn, me)
            tl.store(seen + turn, found)
            dev.fence(ctx)
            dev.p(ctx, word + turn, 1, 1 - me)  # check: ignore, whether it has come is the question


@two
def test_load_buffering_nobody_reads_what_is_written_because_of_it(me, npes):
    (word,), seen = words()
    load_then_store[(1,)](shmem.device_context(), word, seen, TURNS)
    both = gathered(seen)
    assert (both[0] + both[1] <= 1).all()


@triton.jit
def two_write_two_read(ctx, x, y, first, second, turns):
    """PE 0 writes x on PE 2, PE 1 writes y on PE 3; PE 2 reads x then y, PE 3 y then x, with a quiet between."""
    me = dev.my_pe(ctx)
    for turn in range(turns):
        dev.sync_all(ctx)
        if me == 0:
            dev.p(ctx, x + turn, 1, 2)
        if me == 1:
            dev.p(ctx, y + turn, 1, 3)
        if me == 2:
            one = dev.atomic_fetch(ctx, x + turn, 2)
            dev.quiet(ctx)
            tl.store(first + turn, one)
            tl.store(second + turn, dev.atomic_fetch(ctx, y + turn, 3))
        if me == 3:
            one = dev.atomic_fetch(ctx, y + turn, 3)
            dev.quiet(ctx)
            tl.store(first + turn, one)
            tl.store(second + turn, dev.atomic_fetch(ctx, x + turn, 2))


@four
def test_independent_writes_are_seen_in_one_order(me, npes):
    """IRIW: not both readers see the first word new and the second one old."""
    (x, y), first = words(2)
    second = torch.full((TURNS,), -1, dtype=torch.int64)
    two_write_two_read[(1,)](shmem.device_context(), x, y, first, second, TURNS)
    new, old = gathered(first), gathered(second)
    assert not ((new[2] == 1) & (old[2] == 0) & (new[3] == 1) & (old[3] == 0)).any()


@triton.jit
def signal_under_load(ctx, inbox, outbox, flag, noise, wrong, turns, right, left, COUNT: tl.constexpr):
    """Program 0 sends rows to the right and looks at those from the left; the others keep the links busy meanwhile."""
    lane = tl.arange(0, COUNT)
    if tl.program_id(0) == 0:
        bad = tl.zeros([COUNT], tl.int32)
        for turn in range(1, turns + 1):
            row = (turn % 2) * COUNT + lane
            tl.store(outbox + row, turn * 1000 + lane)
            start = (turn % 2) * COUNT
            dev.put_signal(ctx, inbox + start, outbox + start, COUNT, flag, turn, dev.SIGNAL_SET, right)
            dev.signal_wait_until(ctx, flag, dev.CMP_GE, turn)
            bad += (tl.load(inbox + row) != turn * 1000 + lane).to(tl.int32)
            dev.sync_all(ctx)
        tl.store(wrong + lane, bad)
    else:
        start = (tl.program_id(0) - 1) * 4096
        for _ in range(turns // 4):
            dev.put(ctx, noise + start, noise + start, 4096, left)


@pytest.mark.parametrize("programs", [1] if interpreter.active() else [1, 9])
def test_put_with_signal_under_load_shows_the_whole_payload(programs):
    left, _, right = neighbours()
    inbox, outbox = shmem.zeros(2 * PAYLOAD, dtype=torch.int32), torch.zeros(2 * PAYLOAD, dtype=torch.int32)
    flag, noise = shmem.zeros(1, dtype=torch.uint64), shmem.zeros(8 * 4096, dtype=torch.int32)
    wrong = torch.full((PAYLOAD,), -1, dtype=torch.int32)
    ctx = shmem.device_context()
    signal_under_load[(programs,)](ctx, inbox, outbox, flag, noise, wrong, TURNS, right, left, PAYLOAD)
    assert (wrong == 0).all()


def gathered(seen):
    """What all PEs have seen, a row each, on every PE."""
    rows = shmem.zeros((shmem.n_pes(), TURNS), dtype=torch.int64)
    shmem.fcollect(rows, shmem.array(seen))
    return rows.cpu()
