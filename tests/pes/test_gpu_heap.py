"""The heap in GPU memory: what it has beyond the one in CPU memory. Skipped without a GPU."""

import os

import pytest
import torch

import pyshmem as shmem
from pyshmem.memory.gpu import mapping
from pyshmem.memory.gpu.driver import DriverError
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import heaps
from pyshmem.base.job import job
from support import alone, assert_same, live, near_neighbours, neighbours, payload, work

MIB = 1 << 20


@pytest.fixture(autouse=True)
def on_a_gpu():
    if job.device != "cuda":
        pytest.skip("no heap in GPU memory")


def late(cycles=20_000_000):
    """Keep the current stream busy for some 10 ms."""
    torch.cuda._sleep(cycles)


# ---- two heaps ----


@pytest.mark.parametrize("kinds", [("cpu", "cuda"), ("cuda", "cpu")])
def test_put_and_get_move_between_the_two_kinds_of_memory(kinds):
    left, me, right = neighbours()
    near, own = kinds
    target = shmem.zeros(1001, dtype=torch.int64, device=near)
    source = payload(me, 1, 1000, torch.int64, own)
    shmem.put(target, source, right)
    source.fill_(-1)  # free again on return
    shmem.barrier_all()
    assert_same(target[:1000].clone(), payload(left, 1, 1000, torch.int64, near))
    assert target[1000] == 0
    back = torch.zeros(1000, dtype=torch.int64, device=own)
    shmem.get(back, target, right)
    assert_same(back, payload(me, 1, 1000, torch.int64, own))
    shmem.barrier_all()  # target is read everywhere
    shmem.put_nbi(target[:10], torch.full((10,), 5 + me, device=own), right)
    shmem.quiet()
    shmem.barrier_all()
    assert target[:10].tolist() == [5 + left] * 10


@pytest.mark.parametrize("kinds", [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float32, torch.complex128])
def test_strided_copies_move_between_the_kinds_of_memory(kinds, dtype):
    left, me, right = neighbours()
    near, own = kinds
    target = shmem.zeros(60, dtype=dtype, device=near)
    shmem.iput(target, payload(me, 1, 40, dtype, own), right, 3, 2, 20)
    shmem.barrier_all()
    wanted = torch.zeros(60, dtype=dtype)
    wanted[::3] = payload(left, 1, 40, dtype, "cpu")[::2]
    assert_same(target.cpu(), wanted)
    back = torch.zeros(60, dtype=dtype, device=own)
    shmem.iget(back, target, right, 1, 3, 20)
    assert_same(back[:20].cpu(), payload(me, 1, 40, dtype, "cpu")[::2].contiguous())


def test_the_heaps_are_apart(me):
    here, there = shmem.full(10, me, device="cpu"), shmem.full(10, -me, device="cuda")
    assert (here.device.type, there.device.type) == ("cpu", "cuda")
    assert shmem.is_symmetric(here) and shmem.is_symmetric(there)
    _, _, peer = near_neighbours()
    assert shmem.ptr(here, peer).tolist() == [peer] * 10 and shmem.ptr(there, peer).tolist() == [-peer] * 10


def test_put_signal_may_signal_in_the_other_kind_of_memory():
    left, me, right = neighbours()
    for near, home in (("cuda", "cpu"), ("cpu", "cuda")):
        data = shmem.zeros(MIB // 8, dtype=torch.int64, device=near)
        signal = shmem.zeros(1, dtype=torch.uint64, device=home)
        for turn in range(1, 11):
            late(1_000_000)
            sent = payload(me, turn, MIB // 8, torch.int64, "cuda")
            shmem.put_signal(data, sent, right, signal, turn, shmem.SIGNAL.SET)
            shmem.signal_wait_until(signal, ">=", turn)
            assert_same(data.cpu(), payload(left, turn, MIB // 8, torch.int64, "cpu"))
            shmem.barrier_all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_words_moved_by_a_kernel_are_what_copies_bring(dtype, monkeypatch):
    """The way of AMD's GPUs, whose copies may tear a word."""
    left, me, right = neighbours()
    for name, value in (("moves_words", True), ("put", gpu.near._copy), ("get", gpu.near._copy)):
        monkeypatch.setattr(gpu.near, name, value)
    words = shmem.array(payload(me, 1, 5, dtype))
    assert [shmem.g(words[place], right) for place in range(5)] == payload(right, 1, 5, dtype).tolist()
    flags = shmem.zeros(6, dtype=dtype)
    shmem.barrier_all()
    shmem.p(flags[1], 5, right)
    assert shmem.wait_until_any(flags[:3], "==", 5) == 1
    assert shmem.test_some(flags[:3], ">=", 0) == [0, 1, 2]
    shmem.put(flags[2:3], words[4:5], right)
    shmem.put(flags[3:4], torch.full((1,), 8 + me, dtype=dtype, device="cpu"), right)
    shmem.put_nbi(flags[4:5], words[3:4], right)
    shmem.barrier_all()
    sent = payload(left, 1, 5, dtype).tolist()
    assert flags.tolist() == [0, 5, sent[4], 8 + left, sent[3], 0]
    back = torch.zeros(1, dtype=dtype, device="cpu")
    shmem.get(back, flags[3:4], right)
    assert back.item() == 8 + me


# ---- streams ----


def test_a_put_comes_after_what_is_on_the_current_stream():
    left, me, right = neighbours()
    target = shmem.zeros(1000, dtype=torch.int32)
    source = torch.full((1000,), -1, dtype=torch.int32, device="cuda")
    late()
    source.fill_(me)
    shmem.put(target, source, right)
    source.fill_(-2)
    shmem.barrier_all()
    assert target.tolist() == [left] * 1000


def test_barrier_all_waits_for_kernels_of_the_current_stream():
    left, me, right = near_neighbours()
    target = shmem.zeros(1000, dtype=torch.int32)
    there = shmem.ptr(target, right)
    for turn in range(1, 4):
        late()
        there.fill_(10 * turn + me)
        shmem.barrier_all()
        assert (target.cpu() == 10 * turn + left).all()
        shmem.barrier_all()


def test_quiet_completes_puts_of_every_stream(me):
    left, _, right = neighbours()
    targets, flag = shmem.zeros(3, 1000, dtype=torch.int32), shmem.zeros(1, dtype=torch.int32, device="cpu")
    for number, target in enumerate(targets):
        with torch.cuda.stream(torch.cuda.Stream()):
            late()
            shmem.put(target, torch.full((1000,), 7 + number, dtype=torch.int32, device="cuda"), right)
    shmem.quiet()
    shmem.p(flag, 1, right)
    shmem.wait_until(flag, "==", 1)
    assert [target.unique().tolist() for target in targets] == [[7], [8], [9]]
    shmem.barrier_all()


def test_fence_orders_puts_of_one_stream_before_those_of_another(me):
    left, _, right = neighbours()
    data, flag = shmem.zeros(MIB, dtype=torch.int32), shmem.zeros(1, dtype=torch.int64)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    for turn in range(1, 6):
        with torch.cuda.stream(first):
            late()
            shmem.put(data, torch.full((MIB,), turn, dtype=torch.int32, device="cuda"), right)
        with torch.cuda.stream(second):
            shmem.fence()
            shmem.p(flag, turn, right)
        shmem.wait_until(flag, "==", turn)
        assert (data == turn).all()
        shmem.barrier_all()


def test_put_nbi_comes_after_what_makes_its_source_and_is_complete_after_quiet(me):
    left, _, right = neighbours()
    target, flag = shmem.zeros(MIB, dtype=torch.int32), shmem.zeros(1, dtype=torch.int64)
    source = torch.zeros(MIB, dtype=torch.int32, device="cuda")
    for turn in range(1, 6):
        late()
        source.fill_(turn)
        shmem.put_nbi(target, source, right)
        shmem.quiet()
        shmem.p(flag, turn, right)
        shmem.wait_until(flag, "==", turn)
        assert (target == turn).all()
        shmem.barrier_all()


def test_wait_does_not_queue_behind_a_kernel_of_the_current_stream(me):
    left, _, right = neighbours()
    flag = shmem.zeros(1, dtype=torch.int64)
    with torch.cuda.stream(torch.cuda.Stream()):
        shmem.p(flag, 5, right)
        shmem.quiet()
    busy = torch.cuda.Event()
    late(400_000_000)
    busy.record()
    shmem.wait_until(flag, "==", 5)
    assert not busy.query()
    torch.cuda.synchronize()


def test_calls_that_wait_are_refused_under_graph_capture_and_puts_are_captured(me):
    left, _, right = near_neighbours()
    target, source = shmem.zeros(100), torch.zeros(100, device="cuda")
    shmem.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        source.add_(1)
        shmem.put(target, source, right)
        for call in (shmem.quiet, shmem.barrier_all, lambda: shmem.g(target[:1], right), lambda: shmem.free(target)):
            with pytest.raises(shmem.ArgumentError, match="stream: got a current stream that captures a graph"):
                call()
    for turn in range(1, 4):
        graph.replay()
        shmem.barrier_all()
        assert target.tolist() == [turn] * 100
        shmem.barrier_all()


# ---- growth ----


def test_the_heap_grows_inside_allocations_and_keeps_what_it_holds():
    left, me, right = near_neighbours()
    before = live()
    kept = shmem.array(payload(me, 1, 1000, torch.int32))
    size = gpu.size
    large = shmem.zeros(gpu.size + MIB, dtype=torch.uint8)
    assert gpu.size > size
    shmem.put(large[-1000:], torch.full((1000,), 1 + me, dtype=torch.uint8, device="cuda"), right)
    shmem.barrier_all()
    assert large[-1000:].tolist() == [1 + left] * 1000 and not large[:-1000].any()
    assert_same(kept.clone(), payload(me, 1, 1000, torch.int32))
    assert_same(shmem.ptr(kept, right).clone(), payload(right, 1, 1000, torch.int32))
    for each in (kept, large):
        shmem.free(each)
    again = shmem.zeros(gpu.size - MIB, dtype=torch.uint8)  # one block over old and new memory
    shmem.ptr(again, right).fill_(me + 1)
    shmem.barrier_all()
    assert bool((again == left + 1).all())
    shmem.free(again)
    assert live() == before


@pytest.mark.parametrize("call", ["create", "export", "import_", "map", "allow"])
def test_growth_that_fails_on_one_pe_raises_on_all_and_leaves_the_heap_as_it_was(call, monkeypatch, me, npes):
    if gpu.choice.way != "vmm" or (alone() and call == "import_"):
        pytest.skip("nothing that could fail")
    work(1000)
    before, size, fds = live(), gpu.size, len(os.listdir("/proc/self/fd"))
    free = torch.cuda.mem_get_info()[0]
    if me == npes - 1:

        def fail(*arguments):
            raise DriverError(call, 2, "out of memory, says the test")

        monkeypatch.setattr(gpu.driver, call, fail, raising=True)
    with pytest.raises(shmem.HeapExhaustedError, match="out of memory, says the test"):
        shmem.zeros(gpu.size + MIB, dtype=torch.uint8)
    monkeypatch.undo()
    assert (live(), gpu.size, len(os.listdir("/proc/self/fd"))) == (before, size, fds)
    shmem.barrier_all()
    assert npes > 1 or torch.cuda.mem_get_info()[0] >= free
    shmem.barrier_all()
    assert shmem.zeros(gpu.size + MIB, dtype=torch.uint8).numel() == size + MIB


def test_an_allocation_beyond_the_cap_is_refused_on_every_pe():
    before = live()
    with pytest.raises(shmem.HeapExhaustedError):
        shmem.zeros(gpu.cap + 1, dtype=torch.uint8)
    assert live() == before


# ---- bad input ----


def test_a_tensor_of_another_device_is_refused(me):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    other = (gpu.index + 1) % torch.cuda.device_count()
    target = shmem.zeros(4)
    with pytest.raises(
        shmem.ArgumentError, match=rf"on cuda:{other}; expected a dense tensor in CPU memory or on cuda:{gpu.index}"
    ):
        shmem.put(target, torch.ones(4, device=f"cuda:{other}"), me)
    with pytest.raises(shmem.ArgumentError, match=rf"device: got 'cuda:{other}'"):
        shmem.zeros(4, device=f"cuda:{other}")


# ---- the end ----


def mappings():
    with open("/proc/self/maps") as maps:
        return len(maps.readlines())


@pytest.mark.parametrize("way", ["vmm", "ipc"])
def test_nothing_is_left_after_finalize_however_often(way, monkeypatch, npes):
    monkeypatch.setenv("PYSHMEM_PEER_MAP", way)
    monkeypatch.setenv("SHMEM_SYMMETRIC_SIZE", "200m")
    shmem.finalize()

    def once():
        shmem.init()
        assert gpu.choice.way == way
        left, me, right = neighbours()
        array = shmem.full(30 * MIB, me, dtype=torch.int32)
        shmem.put(array, torch.full((10,), 5 + me, dtype=torch.int32, device="cuda"), right)
        shmem.barrier_all()
        assert array[:11].tolist() == [5 + left] * 10 + [me]
        del array
        shmem.finalize()

    try:
        once()
        torch.cuda.empty_cache()
        fds, maps = len(os.listdir("/proc/self/fd")), mappings()
        for _ in range(50):
            once()
        assert len(os.listdir("/proc/self/fd")) == fds
        assert mappings() - maps < 25
        assert "cuda" not in heaps and gpu.size == 0
    finally:
        monkeypatch.undo()
        shmem.init(heap_size="64m")


def test_the_way_is_chosen_from_what_the_driver_has():
    class Without:
        vendor, version = "cuda", 13000

        def has_virtual_memory(self):
            return False

    assert mapping.choose(Without(), "nvidia", "auto", "auto").way == "ipc"
    with pytest.raises(ValueError, match="no virtual memory"):
        mapping.choose(Without(), "nvidia", "vmm", "auto")
