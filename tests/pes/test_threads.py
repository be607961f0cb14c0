"""9.2 THREAD_MULTIPLE: threads of one PE wait, communicate and meet at the same time, each on a team of its own."""

import threading

import pytest
import torch
from support import here, work

import pyshmem as shmem

THREADS = 3


def in_threads(body):
    """``body(which)`` in THREADS threads at once; what one of them raises is raised here."""
    failures = []

    def each(which):
        try:
            body(which)
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=each, args=(which,)) for which in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.fixture
def teams():
    """As many teams of all PEs as threads."""
    if shmem.query_thread() < shmem.THREAD.MULTIPLE:
        pytest.skip("MPI provides less than MULTIPLE")
    made = [shmem.TEAM_WORLD.split_strided() for _ in range(THREADS)]
    yield made
    for team in made:
        team.destroy()


@pytest.mark.many
def test_collectives_of_different_teams_run_in_different_threads(teams, me, npes):
    """Each thread goes its own pace through its own calls; all of them mixed, small and large."""
    source, target = (
        shmem.zeros(THREADS, 30_000, dtype=torch.int64),
        shmem.zeros(THREADS, 20, 30_000, dtype=torch.int64),
    )

    def body(which):
        team = teams[which]
        for turn in range(20):
            if (turn + which + me) % npes == 0:
                work(2000)
            count = (1, 100, 30_000)[turn % 3]
            mine, into = source[which, :count], target[which, turn, :count]
            mine.fill_(turn * 100 + which * 10 + me)
            if turn % 2:
                shmem.sum_reduce(into, mine, team=team)
                wanted = npes * (turn * 100 + which * 10) + sum(range(npes))
            else:
                shmem.broadcast(into, mine, turn % npes, team=team)
                wanted = turn * 100 + which * 10 + turn % npes
            assert (into == wanted).all(), (
                f"PE {me}, thread {which}, turn {turn}: {into.unique().tolist()}, wanted {wanted}"
            )
            team.sync()

    if here().type != "cpu":  # CUDA loads a kernel when it is first launched, and may wait for those that run
        for which in range(THREADS):
            body(which)
    in_threads(body)


def test_each_thread_waits_for_its_own_flag(teams, me, npes):
    """A ping-pong in each thread, by a context of its own, while the others wait."""
    flags = shmem.zeros(THREADS, dtype=torch.int64)
    right = (me + 1) % npes

    def body(which):
        ctx = teams[which].create_ctx(shmem.CTX.PRIVATE)
        for turn in range(1, 60):
            shmem.p(flags[which : which + 1], turn, right, ctx=ctx)
            ctx.fence()
            shmem.wait_until(flags[which : which + 1], ">=", turn)
        ctx.destroy()

    in_threads(body)
    assert flags.tolist() == [59] * THREADS


@pytest.mark.many
def test_atomics_of_all_threads_of_all_pes_add_up(teams, npes):
    counters = shmem.zeros(npes, dtype=torch.int64)

    def body(which):
        landing = torch.zeros(60, npes, dtype=torch.int64, device=here())
        for turn in range(60):
            for pe in range(npes):
                shmem.atomic_inc(counters[pe : pe + 1], pe)
                shmem.atomic_fetch_add_nbi(landing[turn, pe : pe + 1], counters[pe : pe + 1], 1, pe)

    in_threads(body)
    shmem.barrier_all()
    assert counters[shmem.my_pe()] == 2 * 60 * THREADS * npes


def test_one_lock_serves_the_threads_of_all_pes(teams, npes):
    lock, counter = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)

    def body(which):
        for _ in range(20):
            shmem.set_lock(lock)
            shmem.p(counter, shmem.g(counter, 0) + 1, 0)
            shmem.clear_lock(lock)

    in_threads(body)
    shmem.barrier_all()
    assert shmem.g(counter, 0) == 20 * THREADS * npes
