"""Side streams and events, for schedules with several streams, and graphs of what a call enqueues on all of them.

CPU memory has no streams: there everything happens in order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from pyshmem.diagnosis.event_ring import ring
from pyshmem.kernels.compiled import graph_launcher, refuse_launch
from pyshmem.memory.gpu.driver import Driver
from pyshmem.memory.heap import default
from pyshmem.native._native import launch_graph

# HIP has as many hardware queues of a priority, unless it is told otherwise, and streams share them in order
MOST_ON_HIP = 4
_ring: list[Any] = []


def _stream(priority: int) -> Any:
    """Return a stream for a side. On HIP all sides take turns on a few, and the host's own streams alone have priority."""
    heap = default()
    if not heap.streams:
        return None
    if heap.driver.vendor == "cuda":
        return torch.cuda.Stream(priority=priority)  # type: ignore[no-untyped-call]
    taken = _ring.pop(0) if len(_ring) == MOST_ON_HIP else torch.cuda.Stream()  # type: ignore[no-untyped-call]
    _ring.append(taken)
    return taken


class _Within:
    """A context in which ``stream`` is the current one instead of ``before``, which is of the same device.

    torch.cuda.stream asks for the current stream and compares devices, which takes longer than all else in a short call.
    """

    __slots__ = ("_before", "_stream")

    def __init__(self, stream: Any, before: Any) -> None:
        self._stream, self._before = stream, before

    def __enter__(self) -> None:
        torch.cuda.set_stream(self._stream)

    def __exit__(self, *raised: object) -> None:
        torch.cuda.set_stream(self._before)


class Side:
    """A stream beside the current one. Others may have the same stream: all PEs enqueue on their sides in the same order."""

    def __init__(self, priority: int = -1) -> None:
        """priority: as of torch.cuda.Stream. The usual one is above that of products; 0 is for products beside them."""
        self._used = False
        self._stream: Any = _stream(priority)
        self._present: Any = None  # an event, which is recorded anew for each wait

    def after(self, *others: Any) -> AbstractContextManager[Any]:
        """Return a context in which work is enqueued on the side stream, after the present work of the current stream.

        others: streams whose present work comes before it, too.
        """
        if self._stream is None:
            return nullcontext()
        self._used = True
        current = torch.cuda.current_stream()
        for stream in {current, *others} if others else (current,):
            self._let_wait(self._stream, stream)
        return _Within(self._stream, current)

    def beside(self) -> AbstractContextManager[Any]:
        """Return a context in which work is enqueued after the present work of the side stream alone, behind an after()."""
        return nullcontext() if self._stream is None else _Within(self._stream, torch.cuda.current_stream())

    def keep(self, array: torch.Tensor) -> None:
        """Let the side stream's present work use the array's memory, though its owner frees it before that is done."""
        if self._stream is not None:
            array.record_stream(self._stream)

    def mark(self) -> Any:
        """Return an event after the present work of the side stream."""
        return None if self._stream is None else self._stream.record_event()

    def join(self) -> None:
        """Let the current stream wait for the work since the last join."""
        if self._used:  # a graph that is being captured refuses streams that have no part in it
            self._let_wait(torch.cuda.current_stream(), self._stream)
            self._used = False

    def _let_wait(self, stream: Any, other: Any) -> None:
        """Let a stream wait for the present work of another one."""
        if self._present is None:
            self._present = torch.cuda.Event()
        self._present.record(other)
        stream.wait_event(self._present)


def await_mark(mark: Any) -> None:
    """Let the current stream wait for an event."""
    if mark is not None:
        torch.cuda.current_stream().wait_event(mark)


_capturing = torch._C._cuda_isCurrentStreamCapturing  # torch.cuda's function takes twice the time
# the first version of each vendor's driver whose graphs keep all edges; None: no release is known. HIP's classic executor,
# which ROCm 7.2 still takes for large graphs, loses edges of nodes with more than five children (rocm-systems#11499), and
# graphs have no priority there. docs/decisions.md has the versions
KEEPS_EDGES: dict[str, int | None] = {"cuda": 0, "hip": None}
MOST_GRAPHS = 8  # of a plan; each serves one set of addresses
# calls with the same addresses that come before a capture, which takes as long as they do: callers whose sizes change
# meet some sizes and addresses only a few times
ENQUEUED = 4


def keeps_edges(driver: Driver) -> bool:
    """Return whether the driver's graphs keep the order of what was captured."""
    least = KEEPS_EDGES[driver.vendor]
    return least is not None and driver.version >= least


@dataclass
class _Calls:
    """The calls with the same addresses: how many have enqueued the step, and the graph that the next one has captured."""

    enqueued: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    handle: int = 0  # the driver's, of what is launched


class Replayed:
    """``step(*arrays)`` as a graph. The first calls with some addresses enqueue it, the one behind them captures it.

    While the current stream captures a graph itself, in CPU memory, and with a driver whose graphs lose edges, the step is
    enqueued.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step = step
        # by the address of the ring of events, and by those of the arrays
        self._graphs: dict[int, OrderedDict[tuple[int, ...], _Calls]] = {}
        self._heap = default()
        self._enqueues = not self._heap.streams or not keeps_edges(self._heap.driver)
        self.rebind()
        ring.holders.add(self)

    def rebind(self) -> None:
        """Launch the graphs of kernels that record in the ring that is open, or of those that do not."""
        self._calls = self._graphs.setdefault(ring.address, OrderedDict())

    def __call__(self, *arrays: torch.Tensor) -> None:
        if self._enqueues or _capturing():
            self._step(*arrays)
            return
        key = tuple([each.data_ptr() for each in arrays])
        calls = self._calls.get(key)
        if calls is None:
            if len(self._calls) >= MOST_GRAPHS:
                self._calls.popitem(last=False)
            calls = self._calls[key] = _Calls()
        if not calls.handle:
            if calls.enqueued < ENQUEUED:
                calls.enqueued += 1
                self._step(*arrays)
                return
            calls.graph, calls.handle = self._captured(*arrays)
        code = launch_graph(graph_launcher(), calls.handle, self._heap.near.use_stream())
        if code:
            refuse_launch("ops", "a plan's graph", code)

    def handles(self) -> list[int]:
        """Return the driver's handles of the graphs that calls launch."""
        return [calls.handle for calls in self._calls.values() if calls.handle]

    def _captured(self, *arrays: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, int]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._step(*arrays)
        return graph, graph.raw_cuda_graph_exec()
