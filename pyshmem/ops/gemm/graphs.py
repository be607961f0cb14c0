"""Replays of calls that enqueue many operations: after some calls with the same arrays, a call is one graph launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from pyshmem.runtime._native import launch_graph
from pyshmem.runtime.gpu.driver import Driver
from pyshmem.runtime.gpu.launch import graph_launcher, refuse_launch
from pyshmem.runtime.heap import default

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


class Replayed:
    """``step(*arrays)`` as a graph. The first calls with some addresses enqueue it, the one behind them captures it.

    While the current stream captures a graph itself, in CPU memory, and with a driver whose graphs lose edges, the step is
    enqueued.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step = step
        # how many calls have enqueued it, then torch's graph and the driver's handle of it
        self._graphs: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._heap = default()
        self._enqueues = not self._heap.streams or not keeps_edges(self._heap.driver)

    def __call__(self, *arrays: torch.Tensor) -> None:
        if self._enqueues or _capturing():
            self._step(*arrays)
            return
        key = tuple([each.data_ptr() for each in arrays])
        found = self._graphs.get(key, 0)
        if isinstance(found, int):
            if found < ENQUEUED:
                if not found and len(self._graphs) >= MOST_GRAPHS:
                    self._graphs.popitem(last=False)
                self._graphs[key] = found + 1
                self._step(*arrays)
                return
            found = self._graphs[key] = self._captured(*arrays)
        code = launch_graph(graph_launcher(), found[1], self._heap.near.use_stream())
        if code:
            refuse_launch("ops", "a plan's graph", code)

    def _captured(self, *arrays: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, int]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._step(*arrays)
        return graph, graph.raw_cuda_graph_exec()
