"""Which atomics of the host on a GPU heap release and acquire: no GPU is asked, a stand-in for their kernels is told."""

import types

import pytest
import torch
from pyshmem.host import signal
from pyshmem.runtime.gpu import heap as module
from pyshmem.runtime.heap import cpu


@pytest.fixture
def told(monkeypatch):
    """(a heap that has no memory, what its atomics were told: whether they are ordered)"""
    orders = []

    def apply(op, dtype, address, operand, cond, result, stream, device, ordered):
        orders.append(ordered)

    monkeypatch.setattr(module, "_hostops", lambda: types.SimpleNamespace(apply=apply))
    monkeypatch.setattr(module, "_raw_stream", lambda device: 7)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    heap = module.GpuHeap()
    heap.driver = types.SimpleNamespace(vendor="hip", synchronize=lambda stream: None)
    heap._thread, heap._recorded = module._Thread(), [0]
    heap._thread.ready = True
    heap._begin()
    return heap, orders


def add(heap):
    heap.amo("add", torch.int64, 8, 1, fetch=False)


def test_an_atomic_is_ordered_after_a_fence_until_the_next_quiet(told):
    heap, orders = told
    for step in (add, module.GpuHeap.order, add, add, module.GpuHeap.settle, add):
        step(heap)
    assert orders == [False, True, True, False]


def test_the_quiet_of_one_context_leaves_the_others_fence(told):
    heap, orders = told
    heap.order()
    heap.settle("a context")
    add(heap)
    assert orders == [True]


def test_a_fence_during_a_quiet_outlives_it(told):
    heap, orders = told
    heap.use_stream()
    heap.driver.synchronize = lambda stream: heap.order()
    heap.settle()
    add(heap)
    assert orders == [True]


@pytest.mark.parametrize("update", ["set", "fetch_add"])
def test_signals_are_ordered_without_a_fence(told, update):
    heap, orders = told
    assert heap is not cpu
    signal._update(heap, update, 8, 1)
    assert orders == [True]
