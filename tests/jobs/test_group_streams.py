"""The streams of a process group's calls: they follow each other on whatever streams the program makes them."""

from types import SimpleNamespace

import pytest
import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from pyshmem.distributed import group as groups
from pyshmem.distributed import works
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.two_tensor import TwoTensor


class Stream:
    """Stands for a stream of the GPU. ``log``: what is enqueued on all of them, in order."""

    def __init__(self, number, log):
        self.cuda_stream, self.log = number, log

    def record_event(self):
        self.log.append(f"{self.cuda_stream} records")
        return self

    def wait_stream(self, other):
        self.log.append(f"{self.cuda_stream} waits for {other.cuda_stream}")

    wait_event = wait_stream


class Gpu:
    def __init__(self, patch):
        self.log, self.capturing = [], False
        self.streams = [Stream(number, self.log) for number in range(4)]
        self.now = self.streams[1]
        patch.setattr(torch.cuda, "Stream", lambda device: self.streams[0])
        patch.setattr(torch.cuda, "current_stream", lambda device: self.now)
        patch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "now", stream))
        patch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: self.capturing, raising=False)
        patch.setattr(works, "raw_stream", lambda index: self.now.cuda_stream)
        self.group = works.Streams(torch.device("cuda", 0))

    def call(self, number, at_once=True, used=()):
        """A call that the program makes on this stream. Returns its Work, and what has been enqueued since the last one."""
        self.now = self.streams[number]
        work = self.group.perform(lambda: self.log.append(f"{self.now.cuda_stream} calls"), [], used, at_once)
        seen, self.log[:] = list(self.log), []
        return work, seen


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def test_calls_on_one_stream_record_nothing(gpu):
    for _ in range(3):
        assert gpu.call(1) == (works.DONE, ["1 calls"])


def test_a_call_on_another_stream_waits_for_the_last_one(gpu):
    gpu.call(1)
    assert gpu.call(2)[1] == ["1 records", "2 waits for 1", "2 calls", "2 records"]
    assert gpu.call(2)[1] == ["2 calls", "2 records"]
    assert gpu.call(1)[1] == ["1 waits for 2", "1 calls", "1 records"]


def test_a_call_that_nobody_waits_for_is_on_a_stream_beside_and_wait_orders_the_current_one_behind_it(gpu):
    gpu.call(1)
    tensor = torch.zeros(1)
    work, seen = gpu.call(1, at_once=False, used=[tensor])
    assert seen == ["1 records", "0 waits for 1", "0 waits for 1", "0 calls", "0 records"]
    assert gpu.now.cuda_stream == 1
    assert any(each is tensor for each in work._used)
    gpu.now = gpu.streams[3]
    gpu.streams[0].device = None
    assert work.wait() and gpu.log == ["3 waits for 0"]
    assert work._used == []


def test_a_captured_call_is_in_no_order_with_others(gpu):
    gpu.call(1)
    gpu.call(2)
    gpu.capturing = True
    for number in (2, 3):
        assert gpu.call(number)[1] == [f"{number} calls"]
    gpu.capturing = False
    assert gpu.call(2)[1] == ["2 calls", "2 records"]


@pytest.fixture
def planned(monkeypatch):
    """A group whose calls are all planned, and what became of them: enqueued at once, or performed."""
    found = groups.Group(dist.HashStore(), 0, 1)
    monkeypatch.setattr(groups.Group, "_all", lambda self, routine, *rest: seen.append(routine) or works.DONE)
    monkeypatch.setattr(groups, "enqueue", lambda lane, routine, *rest: seen.append(f"{routine} at once") or True)
    seen = []
    found._streams = SimpleNamespace(may_go_on=lambda: True, went_on=lambda: None)
    found._place, found.team = SimpleNamespace(lane=None), SimpleNamespace(size=1)
    return found, seen


def three_calls(group, tensor, waited_for=True):
    reduce, gather, scatter = options = c10d.AllreduceOptions(), c10d.AllgatherOptions(), c10d.ReduceScatterOptions()
    for each in options:
        each.asyncOp = not waited_for
    group.allreduce([tensor], reduce)
    group.all_gather_single(tensor, tensor, gather)
    group.reduce_scatter_single(tensor, tensor, scatter)


PERFORMED = ["all_reduce", "all_gather_single", "reduce_scatter_single"]


def test_planned_calls_that_are_waited_for_are_enqueued_at_once(planned):
    group, seen = planned
    three_calls(group, torch.zeros(4))
    assert seen == ["reduce at once", "fcollect at once", "reduce_scatter at once"]
    seen.clear()
    three_calls(group, torch.zeros(4), waited_for=False)
    assert seen == PERFORMED


def test_a_mode_sees_planned_calls(planned):
    group, seen = planned
    with CommDebugMode() as mode:
        three_calls(group, torch.zeros(4))
    assert mode.get_total_counts() == 3
    assert seen == PERFORMED


def test_a_tensor_that_unwraps_itself_does_so_in_planned_calls(planned):
    group, seen = planned
    pair = TwoTensor(torch.zeros(4), torch.ones(4))
    three_calls(group, pair)
    assert seen == [each for each in PERFORMED for _ in range(2)]  # of each part


def test_tensors_in_lists_are_kept_until_the_end_of_a_call_that_nobody_waits_for(monkeypatch):
    """The program may drop them, and torch gives their memory to the stream that it allocates on."""
    kept = []
    monkeypatch.setattr(groups.Group, "_all", lambda self, routine, results, opts, call, used: kept.append(used))
    group = groups.Group(dist.HashStore(), 0, 2)
    group._place = None
    output, sources = torch.zeros(2), [torch.ones(2), torch.ones(2)]
    group.reduce_scatter([output], [sources], c10d.ReduceScatterOptions())
    group.allgather_coalesced([[output], sources[:1]], [sources[1]])
    for used, wanted in zip(kept, ([output, *sources], [output, *sources]), strict=True):
        assert {each.data_ptr() for each in used} == {each.data_ptr() for each in wanted}
