"""The device of the suites inside one job: a GPU, or Triton's interpreter on the CPU heap, which only tests the harness.

With operations/ops.py and tune.py it has all that the benchmarks use of pyshmem's internals.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import pyshmem as shmem  # before triton: it chooses the interpreter where there is no GPU
from pyshmem.kernels.compiled import CachedKernel
from pyshmem.kernels.signature import words_of
from pyshmem.memory.heap import heaps
from pyshmem.native._native import launch_prepared

Step = Callable[[], object]


class Accelerator:
    """This PE's device. Made after init. ``compilations`` lists the kernels that Triton has compiled or loaded."""

    def __init__(self) -> None:
        self.heap = heaps.get("cuda")
        self.interpreted = self.heap is None
        if self.interpreted and torch.cuda.is_available():
            raise SystemExit(
                "benchmarks: there is a GPU, but no heap in its memory; see pyshmem's messages and PYSHMEM_HEAP"
            )
        self.device = "cpu" if self.interpreted else "cuda"
        self.compilations: list[str] = []
        if not self.interpreted:
            from triton import knobs

            knobs.compilation.listener = self._compiled

    def _compiled(self, *, metadata: Any, **rest: Any) -> None:
        self.compilations.append(str(metadata.get("name", "a kernel")))

    def facts(self) -> dict[str, Any]:
        where = Path(shmem.__file__).parents[1]
        found = {"library": f"{shmem.info_get_name()} from {where}", "MPI": _mpi()}
        if not self.interpreted:
            gpu = {
                "GPU": torch.cuda.get_device_name(),
                "heap": str(self.heap.choice.way),
                "CUDA": str(torch.version.cuda),
            }
            found |= gpu
        return found

    @property
    def stride(self) -> int:
        """The distance in bytes between the heaps of neighbours, 0 if the distances differ."""
        return 0 if self.interpreted else int(self.heap.stride)

    @property
    def nvidia(self) -> bool:
        return not self.interpreted and torch.version.hip is None

    def cut(self, value: int, most: int) -> int:
        """Return ``value``, limited to ``most`` in the interpreter, which is slow."""
        return min(value, most) if self.interpreted else value

    def synchronize(self) -> None:
        if not self.interpreted:
            torch.cuda.synchronize()

    def copy(self, dest: int, source: int, nbytes: int) -> None:
        """Copy by the copy engine, on the current stream. All addresses are mapped."""
        if self.interpreted:
            ctypes.memmove(dest, source, nbytes)
        else:
            self.heap.driver.copy(dest, source, nbytes, self.stream())

    def stream(self) -> int:
        return 0 if self.interpreted else int(torch.cuda.current_stream().cuda_stream)

    def cached(self, kernel: Any) -> Callable[..., object]:
        """Return ``kernel`` with the library's own launcher, to be called as cached(grid, *args, num_warps=8)."""
        if self.interpreted:
            return lambda grid, *args, **options: kernel[grid](*args, **options)
        return CachedKernel(kernel)

    def bare(self, kernel: Any, word: torch.Tensor, captured: bool) -> Step | None:
        """Return a launch of ``kernel`` on ``word`` by the driver's call alone, or None in the interpreter.

        What the library's launcher does besides is done here, once: to find the compiled kernel and the stream, and to make
        the parameters. captured: the stream is that of a capture, and is looked up.
        """
        if self.interpreted:
            return None
        plan, words = self._prepared(kernel, word)
        if captured:
            return lambda: launch_prepared(plan, self.stream(), *words)
        stream = self.stream()
        return lambda: launch_prepared(plan, stream, *words)

    def _prepared(self, kernel: Any, word: torch.Tensor) -> tuple[bytes, list[int]]:
        loaded = CachedKernel(kernel).find(word, num_warps=1)
        return loaded.prepared(1), words_of((word,), loaded.plan)

    def seconds(self, step: Step, calls: int) -> float:
        """Return the seconds that ``calls`` steps take on the GPU, measured by events."""
        if self.interpreted:
            return issued(step, calls)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def captured(self, step: Step, calls: int) -> Step:
        """Return a function that replays a CUDA graph of ``calls`` steps. All PEs have run the step before.

        All PEs have captured before any of them replays.
        """
        if self.interpreted:
            return lambda: [step() for _ in range(calls)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(calls):
                step()
        return graph.replay


def _mpi() -> str:
    from mpi4py import MPI

    return str(MPI.Get_library_version()).split("\n", 1)[0].strip(" \0")


def issued(step: Step, calls: int) -> float:
    """Seconds of the host for ``calls`` steps."""
    begin = time.perf_counter()
    for _ in range(calls):
        step()
    return time.perf_counter() - begin
