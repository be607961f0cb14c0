"""9.9 barrier and sync, 9.11 fence and quiet: who sees what after them, and that nobody passes a barrier early."""

import pytest
import torch
from support import GUARD, assert_same, from_pe, neighbours, on_one_node, payload, refuses, work

import pyshmem as shmem

BARRIERS = {
    "barrier_all": shmem.barrier_all,
    "sync_all": shmem.sync_all,
    "sync(TEAM_WORLD)": lambda: shmem.sync(shmem.TEAM_WORLD),
    "sync(TEAM_SHARED)": lambda: shmem.sync(shmem.TEAM_SHARED),
    "sync()": shmem.sync,
}


def members_of(name):
    """(the first PE, the number of PEs) of the barrier."""
    team = shmem.TEAM_SHARED if "SHARED" in name else shmem.TEAM_WORLD
    return team.translate_pe(0, shmem.TEAM_WORLD), team.n_pes()


@pytest.mark.parametrize("name", BARRIERS)
def test_nobody_passes_a_barrier_before_all_have_come(name, me, npes):
    """1000 of them back to back; another PE is late each time."""
    count, (first, size) = shmem.zeros(1, dtype=torch.int64), members_of(name)
    for turn in range(1, 1001):
        if me - first == turn % size:
            work(turn % 50 * 10)
        shmem.atomic_fetch_inc(count, first)
        BARRIERS[name]()
        assert size * turn <= shmem.atomic_fetch(count, first) < size * (turn + 1)


def test_sync_of_different_teams_may_follow_each_other(npes):
    count, names = shmem.zeros(1, dtype=torch.int64), list(BARRIERS)
    for turn in range(1, 301):
        shmem.atomic_fetch_inc(count, npes - 1)
        BARRIERS[names[turn % 5]]()
        come = npes * turn if members_of(names[turn % 5])[1] == npes else turn
        assert shmem.atomic_fetch(count, npes - 1) >= come


@pytest.mark.parametrize("name", BARRIERS)
def test_plain_stores_before_a_barrier_are_seen_by_all_after_it(name, me, npes):
    """sync promises this for stores, barrier_all for puts and atomics too; on a GPU sync waits for no stream."""
    page, (first, size) = shmem.zeros(1000, dtype=torch.int32), members_of(name)
    for turn in range(1, 101):
        page.copy_(payload(me, turn, 1000, torch.int32))
        if page.is_cuda and name != "barrier_all":
            torch.cuda.synchronize()
        BARRIERS[name]()
        for pe in range(first, first + size):
            assert_same(from_pe(page, pe), payload(pe, turn, 1000, torch.int32))
        BARRIERS[name]()


def test_barrier_all_completes_what_was_started_without_waiting(me, npes):
    """The source may be changed, the data is there, on every PE."""
    inbox, count = shmem.zeros(npes, 1000, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    source, back = torch.empty(1000, dtype=torch.int64), torch.zeros(npes, 1000, dtype=torch.int64)
    outbox = shmem.empty(1000, dtype=torch.int64)
    for turn in range(1, 51):
        source.fill_(1000 * me + turn)
        outbox.fill_(1000 * me + turn)
        shmem.barrier_all()
        for pe in range(npes):
            shmem.put_nbi(inbox[me], source, pe)
            shmem.atomic_add(count, 1, pe)
            shmem.get_nbi(back[pe], outbox, pe)
        shmem.barrier_all()
        source.fill_(GUARD)
        expected = (torch.arange(npes) * 1000 + turn)[:, None].expand(npes, 1000)
        assert torch.equal(inbox.cpu(), expected) and count.item() == npes * turn
        assert torch.equal(back.cpu(), expected)
        shmem.barrier_all()


@pytest.mark.parametrize("barrier", ["barrier_all", "barrier_on_stream"])
def test_puts_before_a_barrier_are_seen_by_all_after_it(barrier, device, me, npes):
    if barrier == "barrier_on_stream" and device == "cuda" and not on_one_node():
        pytest.skip("kernels of other nodes are not met on streams")
    count = 20_000
    inbox = shmem.zeros(npes, count, dtype=torch.int64)
    for turn in range(1, 21):
        for pe in range(npes):
            shmem.put(inbox[me], payload(me, turn, count, torch.int64), pe)
        getattr(shmem, barrier)()
        seen = inbox.clone()
        getattr(shmem, barrier)()
        for pe in range(npes):
            assert_same(seen[pe], payload(pe, turn, count, torch.int64))


@pytest.mark.parametrize("order", ["fence", "quiet", "fence with a context", "quiet with a context"])
@pytest.mark.parametrize("write", ["p", "put_nbi", "atomic_set", "store through ptr"])
def test_what_comes_before_the_fence_is_seen_before_what_comes_after(order, write):
    """Message passing: whoever sees the flag sees the data. Per turn, with nothing else between the PEs."""
    left, me, right = neighbours()
    data, flag, taken = (shmem.zeros(n, dtype=torch.int64) for n in (1, 1, 1))
    if "store" in write and not on_one_node():
        pytest.skip("a PE cannot store to another node")
    there = shmem.ptr(data, right)
    ctx = shmem.CTX_DEFAULT if "context" in order else None
    ordered = shmem.fence if "fence" in order else shmem.quiet
    for turn in range(1, 101):
        value = 1000 * me + turn
        if write == "p":
            shmem.p(data, value, right)
        elif write == "put_nbi":
            shmem.put_nbi(data, torch.tensor([value]), right)
        elif write == "atomic_set":
            shmem.atomic_set(data, value, right)
        else:
            there.fill_(value)
        ordered(ctx)
        shmem.p(flag, turn, right)
        shmem.wait_until(flag, "==", turn)
        assert data.item() == 1000 * left + turn
        shmem.p(taken, turn, left)
        shmem.wait_until(taken, "==", turn)


@pytest.mark.parametrize("order", ["quiet", "barrier_all"])
def test_of_two_pes_that_write_and_then_read_one_sees_the_other(order, me, npes):
    """Store buffering: both must not read the old value; after a barrier neither does."""
    inbox, seen, ready = (shmem.zeros(npes, dtype=torch.int64) for _ in range(3))
    for turn in range(1, 101):
        for pe in range(npes):
            shmem.p(ready[me], turn, pe)
        shmem.wait_until_all(ready, ">=", turn)  # so that they write at the same time
        for pe in range(npes):
            shmem.put_nbi(inbox[me], torch.tensor(turn), pe)
        getattr(shmem, order)()
        read = inbox.tolist()  # check: ignore, whether it meets the peer's put is the question
        shmem.barrier_all()
        for pe in range(npes):
            shmem.p(seen[me], read[pe], pe)  # what this PE has read of pe
        shmem.barrier_all()
        for pe in range(npes):
            assert turn in (read[pe], seen[pe].item()), f"neither has PE {me} seen PE {pe}, nor the other way round"
            assert order == "quiet" or read[pe] == turn
        shmem.barrier_all()


def test_fence_and_quiet_wait_for_nobody(me, npes):
    """Local calls: a PE alone may make any number of them."""
    mark = shmem.zeros(1, dtype=torch.int32)
    for pe in range(npes):
        if me == pe:
            for _ in range(1000):
                shmem.fence()
                shmem.quiet()
            shmem.p(mark, 1, (me + 1) % npes)
        elif me == (pe + 1) % npes:
            shmem.wait_until(mark, "==", 1)
    shmem.barrier_all()
    assert from_pe(mark, me).item() == 1


@pytest.mark.parametrize("team", [0, "world", None.__class__, shmem.CTX_DEFAULT], ids=str)
def test_sync_refuses_what_is_no_team(team):
    with refuses("sync", r"team: got \w+; expected a Team, or None for TEAM_WORLD, as the last"):
        shmem.sync(team)


@pytest.mark.parametrize("name", ["fence", "quiet"])
def test_fence_and_quiet_refuse_what_is_no_context(name):
    with refuses(name, "ctx: got Team; expected a Ctx, or None for CTX_DEFAULT$"):
        getattr(shmem, name)(shmem.TEAM_WORLD)
