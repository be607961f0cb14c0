"""PEs to which there is no route: every call that would reach one is refused, and none reaches this PE's own memory instead."""

import pytest
import torch
from support import alone, near_neighbours, octets, refuses

import pyshmem as shmem
from pyshmem.memory.heap import default


@pytest.fixture
def lost(me, monkeypatch):
    """The right neighbour, whose heap is not mapped here any longer."""
    _, _, pe = near_neighbours()
    if alone():
        pytest.skip("a PE is the only one of its node")
    monkeypatch.delitem(default().deltas, pe)
    return pe


CALLS = {
    "put": lambda x, y, pe: shmem.put(x, y, pe),
    "get": lambda x, y, pe: shmem.get(y, x, pe),
    "put_nbi": lambda x, y, pe: shmem.put_nbi(x, y, pe),
    "get_nbi": lambda x, y, pe: shmem.get_nbi(y, x, pe),
    "iput": lambda x, y, pe: shmem.iput(x, y, pe, 2, 1, 2),
    "iget": lambda x, y, pe: shmem.iget(y, x, pe, 1, 2, 2),
    "ibput": lambda x, y, pe: shmem.ibput(x, y, pe, 2, 2, 1, 2),
    "ibget": lambda x, y, pe: shmem.ibget(y, x, pe, 2, 2, 1, 2),
    "p": lambda x, y, pe: shmem.p(x[0], 7, pe),
    "g": lambda x, y, pe: shmem.g(x[0], pe),
    "atomic_add": lambda x, y, pe: shmem.atomic_add(x[0], 1, pe),
    "atomic_fetch": lambda x, y, pe: shmem.atomic_fetch(x[0], pe),
    "atomic_compare_swap": lambda x, y, pe: shmem.atomic_compare_swap(x[0], 0, 1, pe),
    "atomic_swap_nbi": lambda x, y, pe: shmem.atomic_swap_nbi(y[:1], x[0], 1, pe),
    "signal_set": lambda x, y, pe: shmem.signal_set(x.view(torch.uint64)[0], 1, pe),
    "put_signal": lambda x, y, pe: shmem.put_signal(x[:2], y[:2], pe, x.view(torch.uint64)[3], 1, shmem.SIGNAL.SET),
}


@pytest.mark.parametrize("routine", CALLS)
def test_a_call_that_would_reach_an_unmapped_pe_is_refused_and_changes_nothing(routine, lost, me):
    x, y = shmem.full(4, me, dtype=torch.int64), torch.full((4,), -1, device=default().device)
    before = octets(x).clone(), octets(y).clone()
    with refuses(routine, f"pe: got {lost}; expected ", shmem.UnreachableError):
        CALLS[routine](x, y, lost)
    assert torch.equal(octets(x), before[0]) and torch.equal(octets(y), before[1])


def test_an_unmapped_pe_has_no_pointer_and_is_not_accessible(lost, me):
    x = shmem.zeros(4)
    assert shmem.ptr(x, lost) is None
    assert shmem.ptr(x, me) is not None
    if default().device == "cpu":
        assert not shmem.pe_accessible(lost) and not shmem.addr_accessible(x, lost)


def test_a_team_with_an_unmapped_pe_has_no_device_context(lost):
    scratch = shmem.zeros(64, dtype=torch.int64)  # of another scratch no context was made before
    with refuses("device_context", f"team: got PE {lost} of .*; expected PEs", shmem.UnreachableError):
        shmem.device_context(scratch=scratch)
