"""9.12 locks: one owner at a time, first come, first served, and what the owner did is seen by the next."""

import threading

import pytest
import torch
from support import neighbours, refuses, work

import pyshmem as shmem


@pytest.fixture
def lock():
    return shmem.zeros(1, dtype=torch.int64)


@pytest.mark.many
def test_a_lock_has_one_owner_at_a_time(lock, npes):
    """A counter that is read and written by plain get and put loses nothing."""
    counter, one = shmem.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for _ in range(100):
        shmem.set_lock(lock)
        shmem.get(one, counter, npes - 1)
        one += 1
        shmem.put_nbi(counter, one, npes - 1)  # completed by clear_lock
        shmem.clear_lock(lock)
    shmem.barrier_all()
    assert shmem.g(counter, npes - 1) == 100 * npes


@pytest.mark.many
def test_a_lock_is_given_in_the_order_it_was_asked_for(lock, me, npes):
    """PE 0 has it while the others ask one after the other; each tells the next one once its ticket is drawn."""
    order, place = shmem.full(npes, -1, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    asked = shmem.zeros(1, dtype=torch.int64)
    if me == 0:
        shmem.set_lock(lock)
        shmem.p(asked, 1, 0)
    shmem.barrier_all()
    if me:
        if me > 1:
            shmem.wait_until(asked, "==", 1)
        thread = threading.Thread(target=shmem.set_lock, args=(lock,))
        before = shmem.g(lock, 0) >> 32
        thread.start()
        while shmem.g(lock, 0) >> 32 == before:
            work(10)
        shmem.p(asked, 1, (me + 1) % npes if me + 1 < npes else 0)
        if me + 1 == npes:
            shmem.p(place, 1, 0)
        thread.join()
    elif npes > 1:
        shmem.wait_until(place, "==", 1)
        shmem.p(place, 0, 0)
        shmem.quiet()
    shmem.p(order[(at := shmem.atomic_fetch_inc(place, 0)) : at + 1], me, 0)
    shmem.clear_lock(lock)
    shmem.barrier_all()
    if me == 0:
        assert order.tolist() == list(range(npes))


def test_test_lock_takes_a_free_lock_and_never_waits(lock, me, npes):
    if me == 0:
        assert shmem.test_lock(lock) is False, "acquired"
        assert shmem.test_lock(lock) is True
    shmem.barrier_all()
    assert shmem.test_lock(lock) is True, "PE 0 has it"
    shmem.barrier_all()
    if me == 0:
        shmem.clear_lock(lock)
    shmem.barrier_all()
    won = shmem.zeros(1, dtype=torch.int64)
    if shmem.test_lock(lock) is False:
        shmem.atomic_inc(won, 0)
    shmem.barrier_all()
    assert shmem.g(won, 0) == 1, "more than one, or none, of those that asked at once has it"


@pytest.mark.many
def test_a_lock_asked_for_by_test_lock_has_one_owner_too(lock, npes):
    counter = shmem.zeros(1, dtype=torch.int64)
    for _ in range(300):
        while shmem.test_lock(lock):
            work(3)
        shmem.p(counter, shmem.g(counter, 0) + 1, 0)
        shmem.clear_lock(lock)
    shmem.barrier_all()
    assert shmem.g(counter, 0) == 300 * npes


def test_elements_of_an_array_are_locks_of_their_own(me, npes):
    locks, (_, _, right) = shmem.zeros(npes + 1, dtype=torch.int64), neighbours()
    shmem.set_lock(locks[me : me + 1])
    shmem.barrier_all()
    assert all(shmem.test_lock(locks[pe]) for pe in range(npes))
    assert locks[npes] == 0
    shmem.barrier_all()
    shmem.clear_lock(locks[me])
    shmem.barrier_all()
    shmem.set_lock(locks[right : right + 1])
    shmem.clear_lock(locks[right : right + 1])


def test_clear_lock_completes_what_was_started_without_waiting(lock, me, npes):
    source, (_, _, right) = shmem.full(50_000, me, dtype=torch.int64), neighbours()
    target = torch.full((50_000,), -1, device=source.device)
    shmem.set_lock(lock)
    shmem.get_nbi(target, source, right)
    shmem.clear_lock(lock)
    assert (target == right).all()


def test_tickets_go_round_at_the_end_of_their_range(lock, me, npes):
    """The halves of the word wrap around without touching each other."""
    shmem.atomic_set(lock, (2**32 - 1) * (2**32 + 1) - 2**64, 0) if me == 0 else None
    shmem.barrier_all()
    for _ in range(5):
        shmem.set_lock(lock)
        shmem.clear_lock(lock)
    shmem.barrier_all()
    assert (shmem.g(lock, 0) >> 32) & (2**32 - 1) == (5 * npes - 1) and shmem.g(lock, 0) & (2**32 - 1) == 5 * npes - 1


def test_lock_objects(me, npes):
    lock, counter = shmem.Lock(), shmem.zeros(1, dtype=torch.int64)
    for _ in range(20):
        with lock:
            shmem.p(counter, shmem.g(counter, 0) + 1, 0)
    shmem.barrier_all()
    assert shmem.g(counter, 0) == 20 * npes
    if me == 0:
        assert lock.acquire(blocking=False) is True and lock.acquire(blocking=False) is False
        lock.release()
    shmem.barrier_all()
    assert lock.acquire() is True
    lock.release()
    for _ in range(2):
        lock.destroy()
    with pytest.raises(
        shmem.NotSymmetricError,
        match="set_lock: PE .*: lock: got an int64 array of shape .* that is not symmetric: its memory was freed",
    ):
        lock.acquire()


def test_a_waiting_thread_lets_the_others_run(lock, me):
    if me == 0:
        shmem.set_lock(lock)
        ran = []
        thread = threading.Thread(target=lambda: (shmem.set_lock(lock), ran.append("locked"), shmem.clear_lock(lock)))
        thread.start()
        while shmem.g(lock, 0) >> 32 < 2:
            work(10)
        ran.append("meanwhile")
        shmem.clear_lock(lock)
        thread.join()
        assert ran == ["meanwhile", "locked"]


def test_locks_refuse_what_is_none(lock):
    for call in (shmem.set_lock, shmem.test_lock, shmem.clear_lock):
        for array, error, text in (
            (torch.zeros(1, dtype=torch.int64), shmem.NotSymmetricError, "not symmetric: private memory"),
            (shmem.zeros(1, dtype=torch.int32), shmem.DtypeError, "got int32 elements; expected one of int64"),
            (shmem.zeros(2, dtype=torch.int64), shmem.ArgumentError, "exactly one element"),
        ):
            with refuses(f"{call.__name__}", f"lock: .*{text}", error):
                call(array)
    with refuses("clear_lock", "lock: got a lock that is free"):
        shmem.clear_lock(lock)
    assert lock.item() == 0


def test_set_lock_gives_up_and_says_who_is_served(lock, me, monkeypatch):
    from pyshmem.base.job import job

    if me == 0:
        shmem.set_lock(lock)  # check: ignore, the test ends here
        monkeypatch.setattr(job, "timeout", 0.05)
        with pytest.raises(
            shmem.WaitTimeoutError, match="^set_lock: PE 0: lock: got ticket 1, and still 0 is served in 0.05 s"
        ):
            shmem.set_lock(lock)
