"""Which atomics of the host on a GPU heap release and acquire: no GPU is asked, a stand-in for their kernels is told."""

import types

import pytest
import torch
from pyshmem.memory.gpu.heap import GpuHeap
from pyshmem.transport.near import gpu as module


@pytest.fixture
def told(monkeypatch):
    """(a route to a heap that has no memory, what its atomics were told: whether they are ordered)"""
    orders = []

    def apply(op, dtype, address, operand, cond, result, stream, device, ordered):
        orders.append(ordered)

    monkeypatch.setattr(module, "_host_atomics", lambda: types.SimpleNamespace(apply=apply))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    heap = GpuHeap()
    heap.driver = types.SimpleNamespace(vendor="hip", synchronize=lambda stream: None)
    heap.thread, heap._recorded = types.SimpleNamespace(ready=True), [0]
    monkeypatch.setattr(module, "raw_stream", lambda device: 7)
    heap.stream = lambda: 7
    direct = module.GpuNear(heap)
    direct._begin()
    return direct, orders


def add(direct):
    direct.atomics["add"][torch.int64](8, 1)


def test_an_atomic_is_ordered_after_a_fence_until_the_next_quiet(told):
    direct, orders = told
    for step in (add, module.GpuNear.order, add, add, module.GpuNear.settle, add):
        step(direct)
    assert orders == [False, True, True, False]


def test_the_quiet_of_one_context_leaves_the_others_fence(told):
    direct, orders = told
    direct.order()
    direct.settle("a context")
    add(direct)
    assert orders == [True]


def test_a_fence_during_a_quiet_outlives_it(told):
    direct, orders = told
    direct.use_stream()
    direct.heap.driver.synchronize = lambda stream: direct.order()
    direct.settle()
    add(direct)
    assert orders == [True]


@pytest.mark.parametrize("update", ["set", "add"])
def test_signals_are_ordered_without_a_fence(told, update):
    direct, orders = told
    direct.signal(update, 8, 1)
    assert orders == [True]


def test_a_value_that_the_type_cannot_hold_is_no_atomic(told):
    """A kernel would wrap it: the caller words the refusal."""
    direct, orders = told
    for dtype, value in ((torch.int32, 1 << 31), (torch.uint64, -1)):
        with pytest.raises(OverflowError):
            direct.atomics["add"][dtype](8, value)
    assert not orders
