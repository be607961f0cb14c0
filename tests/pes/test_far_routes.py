"""The routes to GPU memory on other nodes, with a stand-in for each PE's GPU: its service executes what the others send.

The arrays are parts of the stand-in's memory, so this runs on CPUs. Skipped on one node, and where there is a GPU."""

import threading
import types

import numpy as np
import pytest
import torch
from pyshmem.native import _native
from pyshmem.memory.cpu_heap import cpu
from pyshmem.base.far import GPU, SHIFT
from pyshmem.base.job import job
from pyshmem.transport.far import gpu as module
from standin_gpu import Gpu
from support import neighbours, on_one_node

import pyshmem as shmem

PIECE = 1000  # bytes in pinned memory at once
_opened = {}  # the stand-in, by generation of the job


def standin():
    """This PE's stand-in, which its service thread knows."""
    if job.generation not in _opened:
        _opened[job.generation] = Gpu()
        assert _opened[job.generation].open()[0] == 0
        shmem.barrier_all()
    return _opened[job.generation]


class Heap:
    """A GPU heap: what is done to it, in order. Its arrays are in CPU memory."""

    device_type, index = 1, 0  # DLPack's CPU

    def __init__(self, done):
        self.done, self.captures = done, False
        self.driver = self.near = self

    def stream(self):
        return 7

    def synchronize(self, stream=7):
        self.done.append("synchronize")

    def copy(self, dest, source, nbytes, stream):
        self.done.append("copy")
        _native.copy(dest, source, nbytes)

    def fetch(self, place, nbytes):
        self.done.append("fetch")
        return place

    def refuse_capture(self, what):
        if self.captures:
            raise shmem.ArgumentError(what)


@pytest.mark.parametrize("name", ["far_fetch_int64", "far_update_int64"])
def test_a_far_pe_refuses_an_atomic_of_a_word_that_is_not_aligned_and_goes_on(name):
    """Calls of the API never send one; kernels may. The caller gets the error, at the latest from quiet."""
    if on_one_node() or job.nodes.count(0) > 1:
        pytest.skip("a near neighbour")
    left, me, right = neighbours()
    words = shmem.zeros(4, dtype=torch.int64, device="cpu")
    shmem.barrier_all()
    place = words.data_ptr() + cpu.far_deltas[right]
    got = rf"target: got an atomic on PE {right} on .*, at an address that is not aligned to the size of the word"
    with pytest.raises(shmem.ArgumentError, match=rf"(atomic|quiet): PE {me}: {got}"):
        getattr(_native, name)(0, place + 1, 5)
        shmem.quiet()
    shmem.atomic_add(words[1:2], 3, right)
    shmem.barrier_all()
    assert words.tolist() == [0, 3, 0, 0]


@pytest.fixture
def gpu():
    if job.device != "cpu" or on_one_node() or job.nodes.count(0) > 1:
        pytest.skip("a GPU, or a near neighbour")
    found = standin()
    found.heap[:], found.on_idle = 0, lambda: None
    shmem.barrier_all()
    return found


@pytest.fixture
def to(gpu, monkeypatch):
    """The route from GPU memory; its requests note that they are sent."""
    monkeypatch.setattr(module, "_CHUNK", PIECE)
    done = []
    route = module.FromGpu(Heap(done))
    route._staged = types.SimpleNamespace(memory=torch.empty(2 * PIECE, dtype=torch.uint8))
    return route


@pytest.fixture
def from_cpu(to):
    return to.from_cpu


@pytest.fixture(params=["from the GPU", "from the CPU"])
def either(request, to):
    return to if request.param == "from the GPU" else to.from_cpu


def place(pe, offset):
    return (pe + 1 << SHIFT | GPU) + offset


def values(pe, count):
    return (np.arange(count) * 7 + pe * 31 + 1).astype(np.uint8)


@pytest.mark.parametrize("nbytes", [1, 4, 8, 100, PIECE, 3 * PIECE + 5, 20_000, 70_001])
def test_a_put_is_there_after_quiet_and_a_get_brings_it_back(nbytes, either, gpu):
    left, me, right = neighbours()
    source, back = values(me, nbytes), np.zeros(nbytes, np.uint8)
    either.put(place(right, 64), source.ctypes.data, nbytes)
    source_again, source[:] = source.copy(), 0  # free again on return
    shmem.quiet()
    shmem.barrier_all()
    assert (gpu.heap[64 : 64 + nbytes] == values(left, nbytes)).all() and not gpu.heap[64 + nbytes :].any()
    either.get(back.ctypes.data, place(right, 64), nbytes)
    assert (back == source_again).all()


def test_a_piece_travels_while_the_copy_engine_has_another(to, gpu, monkeypatch):
    """A get asks for the next piece before it waits for the last; a put sends a piece while the next is copied."""
    _, _, right = neighbours()
    done, own = to.heap.done, np.zeros(3 * PIECE, np.uint8)

    def noted(name):
        return lambda *arguments: (done.append(name), getattr(_native, name)(*arguments))[1]

    calls = types.SimpleNamespace(**{name: noted(name) for name in ("far_ask", "far_await", "far_put")})
    calls.fabric_takes = _native.fabric_takes
    monkeypatch.setattr(module, "_native", calls)
    to.get(own.ctypes.data, place(right, 0), own.size)
    take = ["far_await", "copy", "synchronize"]
    assert done == ["far_ask", "far_ask", *take, "far_ask", *take, *take]
    done.clear()
    to.put(place(right, 0), own.ctypes.data, own.size)
    assert done == ["copy", "synchronize", *["copy", "far_put", "synchronize"] * 2, "far_put"]
    shmem.barrier_all()


@pytest.mark.parametrize(
    "item, step, own_step, count", [(1, 3, 2, 50), (8, 24, 8, 2000), (12, 16, 20, 700), (9000, 9001, 9003, 3)]
)
def test_strided_copies_touch_their_items_alone(item, step, own_step, count, either, gpu):
    left, me, right = neighbours()
    span = (count - 1) * own_step + item
    source, back = values(me, span), np.zeros(span, np.uint8)
    either.put_strided(place(right, 8), source.ctypes.data, step, own_step, item, count)
    shmem.quiet()
    shmem.barrier_all()
    wanted = np.zeros_like(gpu.heap)
    for each in range(count):
        wanted[8 + each * step :][:item] = values(left, span)[each * own_step :][:item]
    assert (gpu.heap == wanted).all()
    either.get_strided(back.ctypes.data, place(right, 8), own_step, step, item, count)
    for each in range(count):
        assert (back[each * own_step :][:item] == source[each * own_step :][:item]).all()
        assert not back[each * own_step + item : (each + 1) * own_step].any()


def test_large_data_of_several_pes_do_not_mix(from_cpu, gpu):
    """They pass through one buffer of the target."""
    _, me, n = *neighbours()[:2], shmem.n_pes()
    nbytes = gpu.heap.size // n
    source, back = values(me, nbytes), np.zeros(nbytes, np.uint8)
    for turn in range(1, 6):
        source[:8] = turn
        for pe in [(me + 1 + i) % n for i in range(n - 1)]:
            from_cpu.put(place(pe, me * nbytes), source.ctypes.data, nbytes)
            from_cpu.get(back.ctypes.data, place(pe, me * nbytes), nbytes)
            assert (back == source).all()
    shmem.barrier_all()
    for pe in set(range(n)) - {me}:
        wanted = values(pe, nbytes)
        wanted[:8] = 5
        assert (gpu.heap[pe * nbytes :][:nbytes] == wanted).all()
    shmem.barrier_all()


def test_atomics_act_on_the_far_word(to, gpu):
    left, me, right = neighbours()
    atomics = to.atomics
    atomics["set"][torch.int64](place(right, 8), -5 - me)
    assert atomics["fetch_add"][torch.int64](place(right, 8), 1) == -5 - me
    assert atomics["compare_swap"][torch.int64](place(right, 8), -4 - me, 1 << 40) == -4 - me
    assert atomics["swap"][torch.float32](place(right, 16), 1.5) == 0
    atomics["add"][torch.float32](place(right, 16), 2.25)
    assert atomics["fetch"][torch.float32](place(right, 16)) == 3.75
    assert atomics["fetch_or"][torch.uint32](place(right, 20), 1 << 31) == 0
    assert atomics["fetch_xor"][torch.uint32](place(right, 20), 1) == 1 << 31
    with pytest.raises(OverflowError):
        atomics["add"][torch.int32](place(right, 24), 1 << 31)
    shmem.barrier_all()
    assert [int(gpu.words[each]) for each in (0, 1, 3)] == [0, 1 << 40, 0]
    assert gpu.heap[16:24].tobytes() == np.float32(3.75).tobytes() + np.uint32((1 << 31) + 1).tobytes()


@pytest.mark.parametrize("nbytes", [0, 8, 5000])
def test_the_signal_of_either_kind_of_memory_comes_after_its_data(nbytes, either, to, gpu):
    """Whatever the GPU does for a turn, it does before the turn's signal changes."""
    left, me, right = neighbours()
    signal = shmem.zeros(1, dtype=torch.uint64, device="cpu")
    in_gpu, in_cpu = (to, place(right, 8)), (cpu.far, cpu.far_deltas[right] + signal.data_ptr())
    seen = []
    gpu.on_idle = lambda: seen.append((int(gpu.words[1]), int(signal.numpy()[0])))
    shmem.barrier_all()
    for turn in range(1, 11):
        source = np.full(nbytes, turn, np.uint8)
        for home, word in (in_gpu, in_cpu):
            either.put_signal(place(right, 64), source.ctypes.data, nbytes, home, "set", word, turn)
        shmem.signal_wait_until(signal, ">=", turn)
        assert gpu.words[1] == turn and (gpu.heap[64 : 64 + nbytes] == turn).all()
        shmem.barrier_all()
        while_data_came = [(turn - 1, turn - 1), (turn, turn - 1)]  # before the GPU's signal, before the CPU's
        assert list(dict.fromkeys(seen)) == while_data_came[: 2 if nbytes else 1]
        seen.clear()
        shmem.barrier_all()


def test_cpu_memory_takes_data_from_a_gpu(to, gpu):
    left, me, right = neighbours()
    target = shmem.zeros(5000, dtype=torch.uint8, device="cpu")
    there = cpu.far_deltas[right] + target.data_ptr()
    source = values(me, 5000)
    to.put(there, source.ctypes.data, 5000)
    shmem.barrier_all()
    assert (target.numpy() == values(left, 5000)).all()
    back = np.zeros(5000, np.uint8)
    to.get_nbi(back.ctypes.data, there, 5000, None, back)
    shmem.quiet()
    assert (back == values(me, 5000)).all()
    shmem.barrier_all()


CALLS = {
    "put": lambda to, own, at: to.put(at, own, 16),
    "word": lambda to, own, at: to.put(at, own, 8),
    "get": lambda to, own, at: to.get(own, at, 16),
    "put_nbi": lambda to, own, at: to.put_nbi(at, own, 16, None, None),
    "get_nbi": lambda to, own, at: to.get_nbi(own, at, 16, None, None),
    "store": lambda to, own, at: to.store(at, own, 8),
    "fetch": lambda to, own, at: to.fetch(at, 8),
    "put_strided": lambda to, own, at: to.put_strided(at, own, 8, 8, 4, 2),
    "get_strided": lambda to, own, at: to.get_strided(own, at, 8, 8, 4, 2),
    "signal": lambda to, own, at: to.signal("add", at, 1),
    "atomic": lambda to, own, at: to.atomics["fetch_add"][torch.int64](at, 1),
    "put_signal": lambda to, own, at: to.put_signal(at, own, 16, to, "set", at + 32, 1),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_waits_for_the_current_stream_and_is_refused_if_that_captures_a_graph(call, either, gpu):
    _, _, right = neighbours()
    own = np.arange(4, dtype=np.uint64)
    CALLS[call](either, own.ctypes.data, place(right, 0))
    shmem.barrier_all()
    done = either.heap.done
    assert "synchronize" in done or "fetch" in done
    before = gpu.heap.copy()
    either.heap.captures = call != "word" or either.__class__ is module.FromCpu
    if either.heap.captures:
        with pytest.raises(shmem.ArgumentError, match="PE of another node"):
            CALLS[call](either, own.ctypes.data, place(right, 0))
    shmem.barrier_all()
    assert (gpu.heap == before).all()


def test_threads_have_their_own_staging_memory(to, gpu, monkeypatch):
    """Both have copied their data before one of them sends."""
    left, me, right = neighbours()
    monkeypatch.setattr(torch, "empty", lambda n, dtype, device, pin_memory: torch.zeros(n, dtype=dtype))
    both = threading.Barrier(2)
    monkeypatch.setattr(to, "_staged", module.FromGpu(to.heap)._staged)
    copy = to.heap.copy
    monkeypatch.setattr(to.heap, "copy", lambda *arguments: (copy(*arguments), both.wait(30)))

    def send(number):
        source = np.full(PIECE, number, np.uint8)
        to.put(place(right, number * PIECE), source.ctypes.data, PIECE)

    threads = [threading.Thread(target=send, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shmem.barrier_all()
    for number in (1, 2):
        assert (gpu.heap[number * PIECE :][:PIECE] == number).all()
