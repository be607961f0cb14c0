"""Replays of calls that enqueue many operations: after two calls with the same arrays, a call is one graph launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from pyshmem.runtime._native import launch_graph
from pyshmem.runtime.gpu.launch import graph_launcher, refuse_launch
from pyshmem.runtime.heap import default

_capturing = torch._C._cuda_isCurrentStreamCapturing  # torch.cuda's function takes twice the time
MOST_GRAPHS = 8  # of a plan; each serves one set of addresses


class Replayed:
    """``step(*arrays)`` as a graph. The first call with some addresses enqueues it, the second captures it.

    While the current stream captures a graph itself, and in CPU memory, the step is enqueued.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step = step
        # torch's graph, and the driver's handle of it
        self._graphs: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._heap = default()

    def __call__(self, *arrays: torch.Tensor) -> None:
        if not self._heap.streams or _capturing():
            self._step(*arrays)
            return
        key = tuple([each.data_ptr() for each in arrays])
        found = self._graphs.get(key)
        if found is None:
            if key not in self._graphs:
                if len(self._graphs) >= MOST_GRAPHS:
                    self._graphs.popitem(last=False)
                self._graphs[key] = None
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
