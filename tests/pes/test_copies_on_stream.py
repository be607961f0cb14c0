"""fcollect and alltoall by copy engines: their meetings, with a driver's stand-in that works at once on the CPU heap."""

import torch

import pyshmem as shmem
from pyshmem.host.collectives import pair_of
from pyshmem.host.streams.copies import exchange
from pyshmem.native import _native
from pyshmem.base.comparisons import EQ
from pyshmem.memory.cpu_heap import cpu
from pyshmem.base.job import job
from support import GUARD, guarded, interpreted, on_one_node, payload, untouched, work
from team_shapes import group  # noqa: F401

pytestmark = interpreted


class Driver:
    """Performs what is enqueued. ``waits``: whether streams can wait for words."""

    def __init__(self, waits=True):
        self.waits = waits

    def can_wait(self, cmp):
        return self.waits and cmp == EQ

    def write_value(self, stream, address, value):
        _native.fence()
        _native.set_uint64(address, value)

    def wait_value(self, stream, address, cmp, value):
        _native.wait_uint64(address, cmp, value, job.timeout, job.spins)

    def copy(self, dest, source, nbytes, stream):
        _native.copy(dest, source, nbytes)


class Stream:
    cuda_stream = 2

    def wait_stream(self, other):
        pass


class Near:
    def use_stream(self):
        return 1

    def side(self, ctx):
        return Stream()


class Heap:
    """The CPU heap as a GPU's."""

    near, index = Near(), 0

    def __init__(self, driver):
        self.driver, self.deltas = driver, cpu.deltas


def moved(team, target, source, count, step, monkeypatch, driver=None, meet=None):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: Stream())
    pair = pair_of("alltoall_on_stream", target, source)._replace(heap=Heap(driver or Driver()))
    exchange(team, pair, count, step, meet)


def test_no_target_is_written_before_its_pe_comes_and_all_is_there_when_the_call_ends(group, me, monkeypatch):
    team, pes = group
    count = 300
    target, whole = guarded(count * len(pes), torch.int32)
    source = shmem.zeros(count * len(pes), dtype=torch.int32)
    if not team or not on_one_node():
        return
    for turn in range(12):
        step = count if turn % 2 else 0
        source.copy_(payload(me, turn, count * len(pes), torch.int32))
        target.fill_(GUARD)
        if turn % len(pes) == team.my_pe():
            work(30_000)
            assert (target == GUARD).all()
        moved(team, target, source, count, step, monkeypatch)
        source.fill_(-1)
        mine = count * team.my_pe() if step else 0
        wanted = [payload(pe, turn, count * len(pes), torch.int32)[mine : mine + count] for pe in pes]
        assert torch.equal(target, torch.cat(wanted))
    assert untouched(whole[count * len(pes) :])


def test_where_streams_cannot_wait_the_barrier_is_enqueued_before_and_after_the_copies(me, npes, monkeypatch):
    if not on_one_node():
        return
    source, target = shmem.full(4, me, dtype=torch.int64), shmem.full(4 * npes, -1, dtype=torch.int64)
    seen = []

    def meet():
        seen.append(target.tolist())
        shmem.barrier_all()

    moved(shmem.TEAM_WORLD, target, source, 4, 0, monkeypatch, Driver(waits=False), meet)
    assert len(seen) == 2
    assert target.tolist() == [pe for pe in range(npes) for _ in range(4)]
    shmem.barrier_all()
