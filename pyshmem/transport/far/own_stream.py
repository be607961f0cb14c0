"""The current stream of a GPU program on several nodes, which takes the place of CUDA's legacy default stream.

A copy from the legacy stream to pageable memory, as x.cpu() and x.tolist() make, holds a lock of the driver until the work
before it has ended. If that is a kernel that waits for a far PE, the service thread cannot execute the request that it waits
for. On no other stream does such a copy hold the lock. This one is a blocking stream: work on the legacy stream, of CuPy for
example, and work here still wait for each other.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pyshmem.memory.gpu.heap import GpuHeap


def enter(heap: GpuHeap) -> None:
    """Make the stream current in this thread, if the legacy stream is."""
    if heap.driver.vendor == "cuda" and torch.cuda.current_stream(heap.device) == torch.cuda.default_stream(
        heap.device
    ):
        torch.cuda.set_stream(_stream(heap))


def leave(heap: GpuHeap) -> None:
    """Make the legacy stream current again, if this one is."""
    if heap.driver.vendor == "cuda" and torch.cuda.current_stream(heap.device) == _stream(heap):
        torch.cuda.set_stream(torch.cuda.default_stream(heap.device))


@cache
def _stream(heap: GpuHeap) -> torch.cuda.Stream:
    """One for the process, which is never destroyed: torch may still have memory that was used on it."""
    return torch.cuda.ExternalStream(heap.driver.create_stream(), heap.device)  # type: ignore[no-untyped-call]
