"""The page in which a PE counts what it does: calls and bytes by route, waits, meetings, and the use of its heap."""

import os
import threading

import numpy as np
import pytest
import torch
from surroundings import until

import pyshmem as shmem
from pyshmem.launch import running
from pyshmem.native import _native
from pyshmem.base import activity
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import default


@pytest.fixture
def page():
    """What top sees of this PE."""
    return next(each for each in running._pages(os.getpid()) if each.pe == shmem.my_pe())


def counted(page, call):
    """(calls, bytes) to near PEs, and the same to far PEs, of ``call``."""
    before = page.counts()
    call()
    after = page.counts()
    return [(after.calls[far] - before.calls[far], after.bytes[far] - before.bytes[far]) for far in (0, 1)]


def beside(end_it, wait):
    """Make a call that waits, while another thread runs ``end_it``."""
    ender = threading.Thread(target=end_it)
    ender.start()
    wait()
    ender.join()


def test_each_call_counts_with_its_bytes_on_its_route(page):
    there = (shmem.my_pe() + 1) % shmem.n_pes()
    far = there in cpu.far_deltas
    x, word = shmem.zeros(64, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
    own = torch.ones(64, dtype=torch.int64, device=x.device)
    calls = [(lambda: shmem.put(x, own, there), 1, 512), (lambda: shmem.get(own, x, there, size=3), 1, 24),
             (lambda: shmem.put(x, np.ones(8, np.int64), there), 1, 64), (lambda: shmem.p(x[:1], 5, there), 1, 8),
             (lambda: shmem.iput(x, own, there, 2, 2, 10), 1, 80), (lambda: shmem.atomic_add(x[:1], 1, there), 1, 8),
             (lambda: shmem.put_signal(x, own, there, word, 1, shmem.SIGNAL.ADD, size=4), 2, 40)]  # fmt: skip
    for call, count, nbytes in calls:
        own_route = (count, nbytes)
        assert counted(page, call) == ([(0, 0), own_route] if far else [own_route, (0, 0)])
        shmem.quiet()
    with pytest.raises(shmem.OutOfRangeError):
        shmem.put(x, own, shmem.n_pes())
    shmem.quiet()
    shmem.barrier_all()


def test_barriers_and_collectives_are_meetings(page):
    x = shmem.ones(4, dtype=torch.int64, device="cpu")
    before = page.counts().meetings
    shmem.barrier_all()
    shmem.sum_reduce(x, x)
    assert page.counts().meetings >= before + 2


def test_heap_in_use_is_known(page):
    index = int(default().streams)
    shmem.free(shmem.zeros(1000, dtype=torch.uint8))
    before = page.counts().used[index]
    x = shmem.zeros(1000, dtype=torch.uint8)
    assert page.counts().used[index] - before == 1024  # a multiple of 64
    shmem.free(x)
    assert page.counts().used[index] == before
    assert page.counts().size[index] == default().size


@pytest.mark.parametrize("watched", [True, False])
def test_waits_are_timed_only_while_somebody_watches(page, watched):
    word = shmem.zeros(1, dtype=torch.uint64)
    page.watch(watched)
    seen = []

    def end_it():
        """Ends the wait when it has said where it is; nobody watches: when it waits."""
        until(lambda: page.counts().where if watched else page.counts().waits > before.waits)
        seen.append(page.counts())
        shmem.signal_set(word, 1, shmem.my_pe())

    before = page.counts()
    beside(end_it, lambda: shmem.signal_wait_until(word, ">=", 1))
    page.watch(False)
    after = page.counts()
    assert after.waits - before.waits >= 1
    assert after.since == 0
    assert after.where == ""
    if watched:
        assert after.waited - before.waited >= 0.02e9
        assert seen[0].since > 0
        assert seen[0].where.startswith("signal_wait_until at ")
        assert "test_activity.py" in seen[0].where
    else:
        assert after.waited == before.waited
    shmem.barrier_all()


def test_a_wait_within_a_wait_belongs_to_it(page):
    """A wait for a word in GPU memory is a loop of looks, each of which waits for a copy."""
    word = shmem.zeros(1, dtype=torch.uint64)
    page.watch(True)
    before = page.counts()
    _native.wait_goes_on(True)

    def end_it():
        until(lambda: page.counts().where)
        shmem.signal_set(word, 1, shmem.my_pe())

    beside(end_it, lambda: shmem.signal_wait_until(word, ">=", 1))
    within = page.counts()
    _native.wait_ends()
    page.watch(False)
    after = page.counts()
    assert within.since > 0 and within.where and within.waits == before.waits + 1
    assert after.since == 0 and after.where == "" and after.waits == within.waits
    shmem.barrier_all()


def test_a_long_wait_counts_for_whoever_comes_during_it(page):
    word = shmem.zeros(1, dtype=torch.uint64)
    before = page.counts()

    def end_it():
        until(lambda: page.counts().waits > before.waits)
        page.watch(True)
        until(lambda: page.counts().where)
        shmem.signal_set(word, 1, shmem.my_pe())

    beside(end_it, lambda: shmem.wait_until(word, "==", 1))
    page.watch(False)
    assert page.counts().waited > before.waited
    shmem.barrier_all()


def test_page_says_whose_it_is(page):
    assert page.told["n_pes"] == shmem.n_pes()
    assert page.told["pid"] == os.getpid()
    assert page.state() == "running"
    job = running.find(os.getpid())
    assert [each.pe for each in job.pes if each.pe == shmem.my_pe()] == [shmem.my_pe()]
    assert activity.own.address
