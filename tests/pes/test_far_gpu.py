"""GPU memory of PEs on other nodes: what the kernels there see, and in what order. Skipped without GPUs or on one node."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.memory.gpu.heap import gpu
from pyshmem.base.job import job
from support import assert_same, on_one_node, payload

MIB = 1 << 20
TURNS = 20


@pytest.fixture(autouse=True)
def gpus_of_several_nodes():
    if job.device != "cuda" or on_one_node() or shmem.n_pes() % node_size():
        pytest.skip("no GPU memory, or not several nodes of one size")


def node_size():
    return max(map(job.nodes.count, job.nodes))


def far_neighbours():
    """(left, me, right) in a ring in which the neighbours are on other nodes."""
    me, n, step = shmem.my_pe(), shmem.n_pes(), node_size()
    return (me - step) % n, me, (me + step) % n


@triton.jit
def receive(ctx, results, data, n, arrived, turn, BLOCK: tl.constexpr):
    """Wait for the signal of a turn, and copy the data that have come before it."""
    dev.signal_wait_until(ctx, arrived, dev.CMP_GE, turn)
    for first in tl.range(0, n, BLOCK):
        place = first + tl.arange(0, BLOCK)
        tl.store(results + place, tl.load(data + place, place < n), place < n)


@triton.jit
def count_up(ctx, counter, times):
    for _ in tl.range(0, times):
        dev.atomic_add(ctx, counter, 1, dev.my_pe(ctx))


@triton.jit
def wait_and_tell(ctx, flag, value, told):
    dev.signal_wait_until(ctx, flag, dev.CMP_GE, value)
    tl.store(told, value)


SENDERS = {
    "put_signal": lambda target, source, pe, signal, turn: shmem.put_signal(target, source, pe, signal, turn, 0),
    "put, fence, signal_set": lambda target, source, pe, signal, turn: (
        shmem.put(target, source, pe),
        shmem.fence(),
        shmem.signal_set(signal, turn, pe),
    ),
    "put_nbi, quiet, p": lambda target, source, pe, signal, turn: (
        shmem.put_nbi(target, source, pe),
        shmem.quiet(),
        shmem.p(signal, turn, pe),
    ),
    "iput, fence, atomic_add": lambda target, source, pe, signal, turn: (
        shmem.iput(target, source, pe),
        shmem.fence(),
        shmem.atomic_add(signal, 1, pe),
    ),
}


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize("nbytes", [8, 24, 8192, MIB + 4])
@pytest.mark.parametrize("send", SENDERS)
def test_a_kernel_that_sees_a_far_signal_sees_the_data_sent_before(send, nbytes, kind, me):
    left, _, right = far_neighbours()
    if send.startswith("iput") and nbytes > MIB:
        nbytes = 65536
    count = nbytes // 4
    data, (arrived, taken) = shmem.zeros(count, dtype=torch.int32), shmem.zeros(2, dtype=torch.uint64)
    ctx = shmem.device_context(shmem.TEAM_SHARED)
    results = torch.zeros(count, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    for turn in range(1, TURNS + 1):
        source = payload(me, turn, count, torch.int32, kind)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            receive[(1,)](ctx, results, data, count, arrived, turn, 1024)
        SENDERS[send](data, source, right, arrived, turn)
        side.synchronize()
        assert_same(results, payload(left, turn, count, torch.int32, "cuda"))
        shmem.signal_set(taken, turn, left)
        shmem.signal_wait_until(taken, ">=", turn)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint64, torch.float32, torch.float64])
def test_far_atomics_are_atomic_with_those_of_a_kernel(dtype, me):
    _, _, right = far_neighbours()
    counter = shmem.zeros(1, dtype=dtype)
    ctx = shmem.device_context(shmem.TEAM_SHARED)
    count_up[(1,)](ctx, counter, 0)  # compiled
    shmem.barrier_all()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        count_up[(4,)](ctx, counter, 20000)
    for _ in range(200):
        shmem.atomic_inc(counter, right)
    shmem.quiet()
    side.synchronize()
    shmem.barrier_all()
    assert counter.item() == 80200


def test_a_kernel_waits_for_a_far_pe_while_its_host_thread_does_nothing(me):
    """The service thread alone executes the request."""
    _, _, right = far_neighbours()
    flag, told = shmem.zeros(1, dtype=torch.uint64), torch.zeros(1, dtype=torch.int64, device="cuda")
    ctx = shmem.device_context(shmem.TEAM_SHARED)
    wait_and_tell[(1,)](ctx, flag, 0, told)
    shmem.barrier_all()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        wait_and_tell[(1,)](ctx, flag, 7, told)
    shmem.signal_set(flag, 7, right)
    torch.cuda.synchronize()
    assert told.item() == 7


def test_a_copy_to_pageable_memory_behind_a_waiting_kernel_lets_the_request_come(me):
    """On CUDA's legacy stream it would keep the service thread from the driver. The pause makes it likely to come first."""
    _, _, right = far_neighbours()
    if shmem.n_pes() // node_size() % 2:
        pytest.skip("nodes do not form pairs")
    flag, told = shmem.zeros(1, dtype=torch.uint64), torch.zeros(1, dtype=torch.int64, device="cuda")
    ctx = shmem.device_context(shmem.TEAM_SHARED)
    wait_and_tell[(1,)](ctx, flag, 0, told)
    shmem.barrier_all()
    if me // node_size() % 2:
        wait_and_tell[(1,)](ctx, flag, 7, told)
        assert told.tolist() == [7]
    else:
        torch.cuda._sleep(400_000_000)
        torch.cuda.synchronize()
        shmem.signal_set(flag, 7, right)
    shmem.barrier_all()


def test_requests_follow_the_work_on_the_current_stream(me):
    left, _, right = far_neighbours()
    target, flag = shmem.zeros(MIB, dtype=torch.int32), shmem.zeros(1, dtype=torch.int64)
    source = torch.zeros(MIB, dtype=torch.int32, device="cuda")
    for turn in range(1, 4):
        torch.cuda._sleep(20_000_000)
        source.fill_(turn)
        shmem.put(target, source, right)
        source.fill_(-1)
        shmem.p(flag, turn, right)
        shmem.wait_until(flag, "==", turn)
        assert (target == turn).all()
        shmem.barrier_all()


def test_a_get_reads_what_a_far_pe_has_computed_before_its_signal(me):
    left, _, right = far_neighbours()
    data, flag = shmem.zeros(MIB, dtype=torch.int32), shmem.zeros(1, dtype=torch.uint64)
    found = torch.zeros(MIB, dtype=torch.int32, device="cuda")
    for turn in range(1, 4):
        torch.cuda._sleep(20_000_000)
        data.fill_(100 * turn + me)
        shmem.quiet()
        shmem.signal_set(flag, turn, right)
        shmem.signal_wait_until(flag, ">=", turn)
        shmem.get(found, data, left)
        assert (found == 100 * turn + left).all()
        shmem.barrier_all()


@pytest.mark.parametrize("nbytes", [4 * MIB, 4 * MIB + 1, 13 * MIB + 20])
def test_every_piece_of_a_long_copy_arrives_at_its_place(nbytes, me):
    left, _, right = far_neighbours()
    target, found = shmem.zeros(nbytes, dtype=torch.uint8), torch.zeros(nbytes, dtype=torch.uint8, device="cuda")

    def data(pe):
        return (torch.arange(nbytes, device="cuda") // 4096 * 7 + torch.arange(nbytes, device="cuda") + pe).to(
            torch.uint8
        )

    shmem.put(target, data(me), right)
    shmem.barrier_all()
    assert_same(target, data(left))
    shmem.get(found, target, right)
    assert_same(found, data(me))
    shmem.barrier_all()


def test_requests_reach_memory_that_the_heap_has_grown_by(me):
    left, _, right = far_neighbours()
    large = shmem.zeros(gpu.size + MIB, dtype=torch.uint8)
    shmem.put(large[-1000:], torch.full((1000,), 1 + me, dtype=torch.uint8, device="cuda"), right)
    shmem.barrier_all()
    assert large[-1000:].tolist() == [1 + left] * 1000 and not large[:-1000].any()
    assert shmem.g(large[-1:], left) == 1 + (left - node_size()) % shmem.n_pes()
    shmem.barrier_all()


def test_calls_to_a_far_pe_are_refused_under_graph_capture(me):
    _, _, right = far_neighbours()
    x, y = shmem.zeros(16), torch.ones(16, device="cuda")
    calls = (
        lambda: shmem.put(x, y, right),
        lambda: shmem.get(y, x, right),
        lambda: shmem.p(x[:1], 1.0, right),
        lambda: shmem.atomic_add(x[:1], 1.0, right),
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        y.add_(1)
        for call in calls:
            with pytest.raises(
                shmem.ArgumentError, match="a PE of another node: .*a current stream that captures a graph"
            ):
                call()
    shmem.barrier_all()
    assert not x.any()


def test_requests_are_executed_while_a_graph_is_captured(me):
    """torch's strictest mode, which refuses many calls of all threads."""
    left, _, right = far_neighbours()
    if shmem.n_pes() // node_size() % 2:
        pytest.skip("nodes do not form pairs")
    captures = me // node_size() % 2 == 0
    word, y = shmem.zeros(1, dtype=torch.uint64), torch.ones(16, device="cuda")
    ready = shmem.zeros(1, dtype=torch.uint64, device="cpu")
    graph = torch.cuda.CUDAGraph()
    if captures:
        with torch.cuda.graph(graph, capture_error_mode="global"):
            y.add_(1)
            shmem.signal_set(ready, 1, right)
            shmem.signal_wait_until(ready, "==", 2)
    else:
        shmem.signal_wait_until(ready, "==", 1)
        shmem.signal_set(word, 5, left)
        shmem.put(word, torch.tensor([9], dtype=torch.uint64), left)
        shmem.quiet()
        shmem.signal_set(ready, 2, left)
    shmem.barrier_all()
    assert word.item() == (9 if captures else 0)
