"""Kernels on a team of several nodes: tile calls are refused by name. Skipped on one node."""

import pytest
import torch
import triton
import triton.language as tl
from support import GUARD, interpreted, near_neighbours, on_one_node

import pyshmem as shmem
import pyshmem.device as dev


@pytest.fixture(autouse=True)
def several_nodes():
    if on_one_node():
        pytest.skip("all PEs are on one node")


@triton.jit
def load_tile(ctx, data, pe):
    tl.store(data + 1, dev.load(ctx, data, pe))


@triton.jit
def store_tile(ctx, data, pe):
    dev.store(ctx, data, 1, pe)


@triton.jit
def take_pointer(ctx, data, pe):
    tl.store(dev.ptr(ctx, data, pe), 1)


@triton.jit
def reduce_tile(ctx, data, pe):
    tl.store(data + tl.arange(0, 32), dev.all_reduce(ctx, tl.load(data + tl.arange(0, 32)), "sum"))


@triton.jit
def send_tile(ctx, data, pe):
    dev.send(ctx, tl.load(data + tl.arange(0, 32)), pe)


REFUSED = [
    (load_tile, "load"),
    (store_tile, "store"),
    (take_pointer, "ptr"),
    (reduce_tile, "all_reduce"),
    (send_tile, "send"),
]


@interpreted
@pytest.mark.parametrize("kernel, call", REFUSED, ids=lambda each: getattr(each, "__name__", each))
def test_tiles_are_refused_by_name_for_near_pes_too_and_nothing_is_written(kernel, call, me):
    data = shmem.full(64, GUARD, dtype=torch.int32)
    with pytest.raises(
        Exception,
        match=rf"{call}: PE {me}: ctx: got the context of a team with PEs on other nodes; expected a device context of reach DIRECT",
    ) as refused:
        kernel[(1,)](shmem.device_context(), data, me)
    instead = {"all_reduce": "sum_reduce and its kin", "send": "put_signal with signal_wait_until"}.get(call)
    assert instead is None or f"; {instead}, on symmetric arrays, does" in str(refused.value)
    shmem.barrier_all()
    assert data.tolist() == [GUARD] * 64


def test_tiles_work_on_the_team_of_a_node():
    _, me, right = near_neighbours()
    team = shmem.TEAM_SHARED
    data = shmem.full(64, me, dtype=torch.int32)
    load_tile[(1,)](shmem.device_context(team), data, (team.my_pe() + 1) % team.n_pes())
    assert data[:3].tolist() == [me, right, me]
