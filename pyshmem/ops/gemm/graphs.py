"""Replays of calls that enqueue many operations: after some calls with the same arrays, a call is one graph launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pyshmem.diagnosis.event_ring import ring
from pyshmem.kernels.compiled import graph_launcher, refuse_launch
from pyshmem.memory.gpu.driver import Driver
from pyshmem.memory.heap import default
from pyshmem.native._native import launch_graph

_capturing = torch._C._cuda_isCurrentStreamCapturing  # torch.cuda's function takes twice the time
# the first version of each vendor's driver whose graphs keep all edges; None: no release is known. HIP's classic executor,
# which ROCm 7.2 still takes for large graphs, loses edges of nodes with more than five children (rocm-systems#11499), and
# graphs have no priority there. docs/amd.md has the versions
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
