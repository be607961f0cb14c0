"""A collective that an exception or a time-out ends on one PE ends on all members, and the team makes no more: no result
is made of two calls. The next team, in the same area, is whole."""

import signal
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import pyshmem as shmem
from pyshmem.base import kernel_timeouts
from pyshmem.base.job import job
from pyshmem.memory import areas
from pyshmem.memory.gpu.heap import GpuHeap


class Stop(BaseException):
    """As KeyboardInterrupt."""


@pytest.fixture(autouse=True)
def several(npes):
    if npes == 1:
        pytest.skip("a PE waits for nobody")


@contextmanager
def interrupted_in_a_meeting():
    """A signal handler raises as soon as this PE waits for the others."""

    def stop(number, frame):
        while frame is not None:
            if frame.f_code.co_filename.endswith(("teams/meeting.py", "team_flags.py")):
                raise Stop
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call_of(name, team, size):
    """A call in which all members wait for the last one."""
    source, target = shmem.ones(1000, dtype=torch.int64), shmem.zeros(1000 * size, dtype=torch.int64)
    private = source.clone(), target.clone()
    return {
        "sync": team.sync,
        "small sum": lambda: shmem.sum_reduce(target, source, 1, team),
        "sum": lambda: shmem.sum_reduce(target, source, 1000, team),
        "scan": lambda: shmem.sum_inscan(target, source, 1000, team),
        "private sum": lambda: shmem.sum_reduce(*private[::-1], 1000, team),
        "broadcast": lambda: shmem.broadcast(target, source, size - 1, 1000, team),
        "fcollect": lambda: shmem.fcollect(target, source, 1000, team),
        "collect": lambda: shmem.collect(target, source, 1000, team),
        "alltoall": lambda: shmem.alltoall(target, target.clone(), 1000, team),
        "stream": lambda: shmem.reduce_on_stream(target, source, "sum", team=team),
        "split": team.split_strided,
    }[name]


NAMES = [
    "sync",
    "small sum",
    "sum",
    "scan",
    "private sum",
    "broadcast",
    "fcollect",
    "collect",
    "alltoall",
    "stream",
    "split",
]


@pytest.mark.parametrize("cause", ["Stop", "a time-out"])
@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_ends_early_on_one_pe_is_an_error_on_all_and_so_are_later_ones(name, cause, me, npes, monkeypatch):
    team = shmem.TEAM_WORLD.split_strided()
    call, gone = call_of(name, team, npes), shmem.zeros(1, dtype=torch.uint64, device="cpu")
    if name == "stream" and shmem.zeros(1).is_cuda:
        pytest.skip("calls on streams meet on the GPU")
    shmem.barrier_all()
    if me == 0:
        if cause == "Stop":
            with interrupted_in_a_meeting(), pytest.raises(Stop):
                call()
        else:
            monkeypatch.setattr(job, "timeout", 0.05)
            with pytest.raises(shmem.WaitTimeoutError):
                call()
            monkeypatch.undo()
        for pe in range(npes):
            shmem.signal_set(gone, 1, pe)
    if me == npes - 1:
        shmem.signal_wait_until(gone, ">=", 1)
    said = rf"team: got team of PEs 0, 1, \.\.\., whose \w+ has ended on PE 0 by {cause}.*; expected a team whose calls"
    for each in (call, team.sync):
        with pytest.raises(shmem.BrokenTeamError, match=said):
            each()
    shmem.barrier_all()
    team.destroy()
    again = shmem.TEAM_WORLD.split_strided()
    word = shmem.ones(1, dtype=torch.int64)
    shmem.sum_reduce(word, word, team=again)
    assert word.item() == npes
    again.destroy()


def refused(team, me, calls):
    """All calls of the team are refused, because of a time-out in a kernel of PE 0."""
    said = rf"PE {me}: team: got team of .*, whose reduce_on_stream has ended on PE 0 by a time-out in 0.05 s; expected"
    for call in calls:
        with pytest.raises(shmem.BrokenTeamError, match=said):
            call()
    shmem.barrier_all()
    team.destroy()


def test_a_kernel_that_has_timed_out_in_a_collective_ends_its_team_and_in_another_wait_none(me, monkeypatch):
    """As the host finds it in the record of kernels' waits."""
    team, other = (shmem.TEAM_WORLD.split_strided() for _ in range(2))
    heap = GpuHeap()
    monkeypatch.setattr(areas, "wires", {4096: team.meeting.wires, 8192: other.meeting.wires})
    if me == 0:
        for routine, area in ("signal_wait_until", 8192), ("request", 8192), ("reduce_on_stream", 4096):
            heap._recorded = np.zeros(kernel_timeouts.WORDS, np.int64)
            heap._recorded[kernel_timeouts.ROUTINE] = kernel_timeouts.CODES[routine]
            heap._recorded[[kernel_timeouts.AREA, kernel_timeouts.LIMIT]] = area, 50_000_000
            with pytest.raises(shmem.WaitTimeoutError, match=f"^kernel: {routine}: PE 0: "):
                heap.raise_recorded()
            heap.raise_recorded()
    shmem.barrier_all()
    other.sync()
    other.destroy()
    refused(team, me, [team.sync])


def test_a_call_on_a_stream_whose_kernel_has_timed_out_ends_its_team(me, npes, monkeypatch):
    if not shmem.zeros(1).is_cuda:
        pytest.skip("calls on streams meet in kernels on GPUs alone")
    team, gone = shmem.TEAM_WORLD.split_strided(), shmem.zeros(1, dtype=torch.uint64, device="cpu")
    call = call_of("stream", team, npes)
    shmem.barrier_all()
    if me == 0:
        monkeypatch.setattr(job, "timeout", 0.05)
        call()
        with pytest.raises(shmem.WaitTimeoutError, match="^kernel: reduce_on_stream: PE 0: ctx: got no call from PE"):
            shmem.quiet()
        monkeypatch.undo()
        for pe in range(npes):
            shmem.signal_set(gone, 1, pe)
    shmem.signal_wait_until(gone, ">=", 1)
    refused(team, me, [call, team.sync])


def test_an_interrupted_call_that_nobody_joins_is_refused_when_it_is_made_again(me, npes):
    """A program that tries again: its second call must not meet the others' first one."""
    team = shmem.TEAM_WORLD.split_strided()
    array = shmem.full((1000,), me + 1, dtype=torch.int64)
    gone = shmem.zeros(1, dtype=torch.uint64, device="cpu")
    if me == 0:
        with interrupted_in_a_meeting(), pytest.raises(Stop):
            shmem.sum_reduce(array, array, team=team)
        for pe in range(npes):
            shmem.signal_set(gone, 1, pe)
        array.fill_(1000)
    shmem.signal_wait_until(gone, ">=", 1)
    with pytest.raises(
        shmem.BrokenTeamError, match=f"sum_reduce: PE {me}: team: .* whose sum_reduce has ended on PE 0 by Stop"
    ):
        shmem.sum_reduce(array, array, team=team)
    assert (array == (1000 if me == 0 else me + 1)).all()
    shmem.barrier_all()
    team.destroy()
