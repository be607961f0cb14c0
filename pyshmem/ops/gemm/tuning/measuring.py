"""Times of a product under each policy, by CUDA events."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.host.teams import TEAM_WORLD
from pyshmem.memory.heap import default
from pyshmem.ops.gemm.configurations import configuration
from pyshmem.ops.gemm.gemm_kernel import alone
from pyshmem.ops.gemm.problem import Problem, problem_of
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.tuning.population import Shape
from pyshmem.ops.machine import device, machine

ROUNDS = 5  # measurements of a policy, in turn with those of the others
STEPS = 4  # kernels in a measurement
AHEAD = 60_000  # cycles of a pause before each measurement, so that its kernels are all enqueued when it begins


Calls = Mapping[str, Callable[[], object]]


class ProductTimer:
    """Measures products of random operands that lie in memory as nn.Linear's do: both along K."""

    def __init__(self, tiles: int, clock: Callable[[Calls], dict[str, float]]) -> None:
        """tiles: at most so many are streamed.  clock: returns the seconds of each call. Collective over all PEs."""
        self._clock = clock
        self._words = shmem.zeros(max(tiles, 1), dtype=torch.uint64)
        self._made: dict[Any, torch.Tensor] = {}

    def __call__(self, shape: Shape, dtype: torch.dtype, policies: Iterable[str]) -> dict[str, float]:
        """Return the median seconds of the product under each policy."""
        m, n, k = shape
        a, b, out = self._matrix("a", m, k, dtype), self._matrix("b", n, k, dtype).T, self._matrix("c", m, n, dtype)
        problem = problem_of("gemm_all_gather", a, b, TEAM_WORLD, "rows", {})
        kernels = {policy: self._kernel(problem, policy, a, b) for policy in policies}
        return self._clock({policy: partial(kernel, a, b, out) for policy, kernel in kernels.items()})

    def _kernel(self, problem: Problem, policy: str, a: torch.Tensor, b: torch.Tensor) -> Any:
        product = Product(problem, policy, problem.m, problem.a, False)
        return alone(product, a, b, 0, 0, self._words)

    def _matrix(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """A contiguous part of memory that is kept from shape to shape and grows with them."""
        held = self._made.get((name, dtype))
        if held is None or held.numel() < rows * columns:
            held = torch.randn(rows * columns, dtype=dtype, device=device())
            self._made[name, dtype] = held
        return held[: rows * columns].view(rows, columns)

    def close(self) -> None:
        """Free the symmetric memory. Collective over all PEs."""
        shmem.free(self._words)


def gpu_clock(calls: Calls) -> dict[str, float]:
    """Return the median seconds of each call on torch's current stream. The calls are measured in turn, in ROUNDS rounds."""
    for call in calls.values():
        call()
    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda._sleep(AHEAD)  # type: ignore[no-untyped-call]
            begin.record()
            for _ in range(STEPS):
                call()
            end.record()
            marks[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: statistics.median(begin.elapsed_time(end) for begin, end in pairs) / 1e3 / STEPS
        for name, pairs in marks.items()
    }


def machine_name(dtype: torch.dtype) -> str:
    """Return what a record's times depend on: the GPU, its programs, and the tiles of the type."""
    here = machine()
    row = configuration(here.arch, dtype, None)
    gpu = torch.cuda.get_device_name() if default().streams else "CPU"
    return f"{gpu}, {here.programs} programs, tiles {row.BM} x {row.BN} x {row.BK}"
