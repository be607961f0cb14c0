"""HIP's streams share hardware queues in order: what the host waits for has a queue on which no kernel can wait for the host."""

import ctypes
import itertools
import os
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from pyshmem.host.streams import signals as signals_on_stream
from pyshmem.ops import copies, streams
from pyshmem.base import interpreter
from pyshmem.transport.far.gpu import FromGpu
from pyshmem.transport.near import gpu as near_gpu

NULL = 0
WORD = 0x123456789


class Queues:
    """HIP's streams and their hardware queues: up to ``most`` of a priority, each stream gets the one with the fewest."""

    vendor, version, copy_function = "hip", 70200000, 0

    def __init__(self, most):
        self.most, self.used, self.queue, self.spinning = most, Counter(), {}, set()
        self.numbers = itertools.count(1)
        self.assign(NULL, 0)

    def assign(self, stream, priority):
        own = [(priority, number) for number in range(self.most)]
        self.queue[stream] = min(own, key=lambda queue: self.used[queue])
        self.used[self.queue[stream]] += 1

    def stream(self, device=0, priority=0):
        made = SimpleNamespace(cuda_stream=next(self.numbers), wait_stream=lambda other: None)
        self.assign(made.cuda_stream, priority)
        return made

    def spin(self, stream):
        """A kernel on the stream waits for the host."""
        self.spinning.add(self.queue[stream])

    def read(self, address, nbytes, at, stream, device):
        self.synchronize(stream)
        ctypes.memmove(at, address, nbytes)

    def copy(self, dest, source, nbytes, stream):
        self.read(source, nbytes, dest, stream, 0)

    def apply(self, op, dtype, place, value, cond, at, stream, device, ordered):
        self.read(place, 8, at, stream, device)

    def synchronize(self, stream):
        assert self.queue[stream] not in self.spinning, "the host waits behind a kernel that waits for the host"

    def idle(self, stream):
        return self.queue[stream] not in self.spinning or stream == NULL


@pytest.fixture(params=[4, 8])
def queues(request, monkeypatch):
    made = Queues(request.param)
    monkeypatch.setattr(torch.cuda, "Stream", made.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index=0: SimpleNamespace(cuda_stream=NULL))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(near_gpu, "raw_stream", lambda index: NULL)
    monkeypatch.setattr(near_gpu, "_host_atomics", lambda: made)
    monkeypatch.setattr(streams, "_ring", [])
    return made


@pytest.fixture
def heap(queues, monkeypatch):
    made = SimpleNamespace(driver=queues, index=0, streams=True, device="cuda", stream=lambda: NULL)
    made.thread, made.raise_recorded, made.enter = SimpleNamespace(ready=True), lambda: None, lambda: None
    made.synchronize = lambda: queues.synchronize(NULL)
    monkeypatch.setattr(streams, "default", lambda: made)
    near = made.near = near_gpu.GpuNear(made)
    near.open()
    landing = ctypes.create_string_buffer(64)
    monkeypatch.setattr(near, "_landing", lambda nbytes: ctypes.addressof(landing))
    return made


def word():
    return torch.tensor([WORD])


def calls(heap, place):
    """Every way in which a host call reads what it then waits for."""
    near = heap.near
    yield "look", lambda: near.look(place, 8)
    yield "look of many", lambda: near.look(place, 64)
    yield "g", lambda: near.fetch(place, 8)
    yield "fetch of many", lambda: near.fetch(place, 64)
    yield "atomic", lambda: near.atomics["fetch_add"][torch.int64](place, 1)
    yield "kernels of host collectives", lambda: near.finish(near.own_stream())


def test_no_wait_of_the_host_stands_behind_a_kernel_that_waits_for_the_host(heap, queues):
    """Kernels of the program spin on many streams, on those of contexts and on the sides of attention, products and training."""
    data = torch.full((8,), WORD)
    program = [queues.stream().cuda_stream for _ in range(9)]
    contexts = [heap.near.side(context).cuda_stream for context in range(3)]
    sides = [streams.Side()._stream.cuda_stream for _ in range(30)]
    for stream in (*program, *contexts, *sides):
        queues.spin(stream)
    for name, call in calls(heap, data.data_ptr()):
        found = call()
        if found is not None and "atomic" not in name:
            assert int.from_bytes(ctypes.string_at(found, 8), "little") == WORD, name
        elif found is not None:
            assert found == WORD


def test_a_look_does_not_wait_for_the_current_stream_either(heap, queues):
    data = word()
    queues.spin(NULL)
    queues.idle = lambda stream: False
    assert int.from_bytes(ctypes.string_at(heap.near.look(data.data_ptr(), 8), 8), "little") == WORD


def test_the_service_of_far_pes_has_no_queue_of_the_program(heap, queues, monkeypatch):
    from pyshmem.kernels import requests
    from pyshmem.transport.far import gpu as far_gpu

    heap.system = heap.system_bytes = heap.size = 0
    queues.attachment, queues.address_of = lambda: (0, 0), lambda name: 0
    monkeypatch.setattr(torch, "zeros", lambda *size, **options: torch.empty(*size, dtype=torch.uint8))
    monkeypatch.setattr(far_gpu._native, "far_open_gpu", lambda *arguments: 0)
    monkeypatch.setattr(far_gpu, "job", SimpleNamespace(comm=SimpleNamespace(allgather=lambda value: [value]), my_pe=0))
    monkeypatch.setattr(requests, "plans", lambda: b"")
    far = FromGpu(heap)
    far.open()
    others = [
        NULL,
        *(queues.stream().cuda_stream for _ in range(20)),
        *(streams.Side()._stream.cuda_stream for _ in range(9)),
    ]
    assert queues.queue[far._stream.cuda_stream] not in {queues.queue[stream] for stream in others}


def test_all_schedules_together_have_four_side_streams(heap):
    """Of eight PEs, one schedule alone has 15 sides."""
    assert len({streams.Side()._stream.cuda_stream for _ in range(40)}) == streams.MOST_ON_HIP == 4


def test_plans_are_enqueued_where_graphs_lose_edges(heap, monkeypatch):
    """At each call, and nothing is captured. A release of HIP that keeps them replays again."""
    made = []
    replayed = streams.Replayed(lambda array: made.append(array))
    array = word()
    for call in range(streams.ENQUEUED + 1):
        replayed(array)
        assert len(made) == call + 1
    assert not replayed.handles()
    cuda = SimpleNamespace(vendor="cuda", version=12080)
    assert (streams.keeps_edges(heap.driver), streams.keeps_edges(cuda)) == (False, True)
    monkeypatch.setitem(streams.KEEPS_EDGES, "hip", heap.driver.version)
    assert streams.keeps_edges(heap.driver)


def test_a_plan_is_captured_behind_some_calls_with_the_same_addresses(heap, monkeypatch):
    """A capture takes as long as they do, and callers whose sizes change meet some addresses only a few times."""
    monkeypatch.setitem(streams.KEEPS_EDGES, "hip", heap.driver.version)
    made, captured, launched = [], [], []
    monkeypatch.setattr(streams.Replayed, "_captured", lambda _, array: captured.append(array) or (None, len(captured)))
    monkeypatch.setattr(streams, "_capturing", lambda: False)
    monkeypatch.setattr(streams, "graph_launcher", lambda: None)
    monkeypatch.setattr(streams, "launch_graph", lambda launcher, graph, stream: launched.append(graph) and 0)
    replayed = streams.Replayed(lambda array: made.append(array))
    arrays = [word() for _ in range(2)]
    for call in range(streams.ENQUEUED):
        for array in arrays:
            replayed(array)
        assert len(made) == 2 * call + 2 and not captured
    for array in arrays * 2:
        replayed(array)
    assert len(made) == 2 * streams.ENQUEUED and len(captured) == 2 and launched == [1, 2, 1, 2]


@pytest.mark.parametrize(("hip", "given", "wanted"), [("7.2", None, "8"), ("7.2", "4", "4"), (None, None, None)])
def test_hip_is_told_of_more_queues_before_it_starts_unless_the_user_did(hip, given, wanted, monkeypatch):
    seen = []
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: seen.append(os.environ.get("GPU_MAX_HW_QUEUES")) or True)
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.delenv("GPU_MAX_HW_QUEUES", raising=False)
    if given:
        monkeypatch.setenv("GPU_MAX_HW_QUEUES", given)
    interpreter.choose()
    assert seen == [wanted]
    monkeypatch.delenv("GPU_MAX_HW_QUEUES", raising=False)


# ---- a flag behind other work of its stream ----


@pytest.fixture
def done(heap, queues, monkeypatch):
    """The calls of the driver and the kernels of atomics, in their order."""
    calls = []
    heap.released, queues.apply = 640, lambda *arguments: calls.append(("atomic", arguments[-1]))
    queues.write_value = lambda stream, address, value: calls.append(("write", address))
    queues.copy = lambda dest, source, nbytes, stream: calls.append(("copy", nbytes))
    queues.read = lambda source, nbytes, dest, stream, device: calls.append(("word", nbytes))
    monkeypatch.setattr(near_gpu._native, "wait_uint32", lambda *arguments: None)
    return calls


def test_the_stream_releases_to_the_system_before_a_kernel_sets_a_flag(heap, done):
    """HIP ends a dispatch with a release for one GPU, and the flag's kernel releases one chiplet: a copy before it has run on all."""
    near, place = heap.near, word().data_ptr()
    near.put(place, place, 64)
    near.signal("set", place, 1)
    assert done == [("copy", 64), ("write", 640), ("atomic", True)]
    done.clear()
    near.atomics["add"][torch.int64](place, 1)
    assert done == [("atomic", False)], "an atomic without a fence orders nothing"
    near._fenced = True
    near.atomics["add"][torch.int64](place, 1)
    near.atomics["fetch_add"][torch.int64](place, 1)
    assert done[1:] == [("write", 640), ("atomic", True)] * 2


def test_the_stream_releases_to_the_system_before_flags_of_chunks_and_signals_on_streams(heap, done, monkeypatch):
    monkeypatch.setattr(copies, "default", lambda: heap)
    monkeypatch.setattr(copies, "put", lambda team, target, source, pe: done.append("flag"))
    words, flags = torch.zeros(64, dtype=torch.uint64), torch.zeros(1, 1, 1, dtype=torch.uint64)
    copies.Flags(SimpleNamespace(me=0, size=1), words, flags).tell(0, 0)
    assert done == [("write", 640), "flag"]
    done.clear()
    plan = SimpleNamespace(launch=lambda routine, stream, *words: done.append("signal"))
    monkeypatch.setattr(
        signals_on_stream, "known", {("signal_on_stream", "add", signals_on_stream.job.generation): plan}
    )
    signals_on_stream._signal("signal_on_stream", (heap, heap.near, 0), ("add", 1, 0), "kernel")
    assert done == [("write", 640), "signal"]


def test_the_stream_releases_to_the_system_at_a_fence_and_before_the_kernel_of_a_schedule_of_copies(
    heap, done, monkeypatch
):
    """The kernels that set flags behind the copies may be the program's own."""
    monkeypatch.setattr(copies, "default", lambda: heap)
    near, place = heap.near, word().data_ptr()
    for order in (near.order, copies.order_copies):
        near.put(place, place, 64)
        order()
    assert done == [("copy", 64), ("write", 640)] * 2


def test_nothing_is_written_on_cuda_nor_while_a_graph_is_captured(heap, done, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    heap.near.publish(0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    heap.near.moves_words = False
    heap.near.publish(0)
    heap.near.order()
    assert done == []
