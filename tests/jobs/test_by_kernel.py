"""Reductions by the host in GPU memory: what is launched, on which stream, and what a member that does not come is called."""

import struct
from types import SimpleNamespace

import pyshmem as shmem
import pytest
import torch
from pyshmem.transport.teams import kernels as team_kernels
from pyshmem.transport.teams.operators import REDUCE, Fold
from pyshmem.kernels import plans
from pyshmem.kernels.bound_kernels import Bound
from pyshmem.memory.cpu_heap import cpu
from standin_driver import Driver


def refuse(routine):
    raise shmem.WaitTimeoutError(f"{routine}: no word from a member")


GROUP = SimpleNamespace(wires=(1, 2, 0, 4), size=4, refuse_timeout=refuse)


def call(dtype=torch.float32):
    """sum of 10 elements at 8192 to 4096, and the team's device context."""
    return Fold(REDUCE, "sum", dtype, 4096, 8192, 10), lambda: "the team's context"


class Heap:
    """A GPU's: what is done to it, in order."""

    arch = "nvidia"

    def __init__(self, done, reduces=True, gives_up=False):
        self.done, self.reduces, self.gives_up = done, reduces, gives_up
        self.near = self  # its own route

    def settle(self):
        self.done.append("settle")

    def own_stream(self):
        return 55

    def finish(self, stream):
        self.done.append(f"finish {stream}")
        if self.gives_up:
            raise shmem.WaitTimeoutError("kernel: reduce_on_stream: no word")


@pytest.fixture
def driver(monkeypatch):
    """A driver, and kernels for all but float16; what was asked of them, as it came."""
    found = Driver()
    plan = Bound(struct.pack("<9Q", found.address, 11, 2, 1, 1, 128, 0, False, 21), (10,))
    found.planned = []

    def waited_for(context, *asked):
        assert context == "the team's context"
        found.planned.append(asked)
        return None if torch.float16 in asked else plan

    def combines(dtype, members, arch):
        return (dtype, members, arch) != (torch.float64, 4, "nvidia")

    monkeypatch.setattr(plans, "known", {})
    monkeypatch.setattr(team_kernels, "known", plans.known)
    monkeypatch.setattr(team_kernels, "kernels", lambda: SimpleNamespace(waited_for=waited_for, combines=combines))
    return found


def test_what_the_program_has_enqueued_comes_first_and_the_kernel_is_waited_for(driver):
    heap = Heap(driver.calls)
    for _ in range(2):
        assert team_kernels.reduce("sum_reduce", heap, GROUP, *call())
        launch = (11, (2, 1, 1), 128, 0, 55, [21, 4096, 8192, 10, 0, 0, 0, 0])
        assert driver.calls == ["settle", launch, "finish 55"]
        driver.calls.clear()
    assert driver.planned == [("sum", torch.float32, 10)]


def test_nothing_is_done_where_no_kernel_can(driver):
    for heap in (cpu, Heap(driver.calls, reduces=False)):
        assert not team_kernels.reduce("sum_reduce", heap, GROUP, *call())
    for dtype in (torch.float16, torch.float64):
        assert not team_kernels.reduce("sum_reduce", Heap(driver.calls), GROUP, *call(dtype))
    assert not driver.calls


def test_a_wait_that_gives_up_names_the_call_and_the_team(driver):
    with pytest.raises(shmem.WaitTimeoutError, match="max_reduce: no word from a member"):
        team_kernels.reduce("max_reduce", Heap(driver.calls, gives_up=True), GROUP, *call())


def test_a_launch_that_fails_is_told_with_the_drivers_code(driver):
    driver.code = 719
    with pytest.raises(
        shmem.LaunchError, match=r"sum_reduce: PE .: stream: got error 719 of the GPU driver for its kernel"
    ):
        team_kernels.reduce("sum_reduce", Heap(driver.calls), GROUP, *call())
