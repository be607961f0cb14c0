"""The ring through which compiled kernels reach far PEs, and the thread that executes their requests: see far/proxy.h.

The first device context of a team that spans nodes creates both.
"""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.base.far import PIECE, SLOT_HEAD, SLOTS
from pyshmem.base.kernel_timeouts import CODES
from pyshmem.memory.heap import Heap
from pyshmem.native import _native


class Proxy:
    """The ring of this process's kernels. One per process, named ``proxy``.  memory: empty until there is a ring."""

    def __init__(self) -> None:
        self.memory: tuple[Any, ...] = ()

    def ready(self, heap: Heap) -> int:
        """Return the address of the two words that kernels need: the next ticket, and the address of the ring.

        The proxy starts at the first call. Later calls wake it, as a kernel is about to be launched.
        """
        if not self.memory:
            ring = torch.zeros(SLOTS * (SLOT_HEAD + PIECE), dtype=torch.uint8, device="cpu", pin_memory=heap.streams)
            words = torch.tensor([0, ring.data_ptr()], device=heap.device if heap.streams else "cpu")
            heap.synchronize()
            _native.proxy_open(ring.data_ptr(), heap.record, CODES["request"])
            self.memory = ring, words
        _native.proxy_wake()
        return int(self.memory[1].data_ptr())

    def drain(self, heap: Heap) -> None:
        """Wait until the requests of the kernels on the current stream have been sent. There is a ring."""
        heap.synchronize()
        _native.proxy_drain()

    def stop(self, heap: Heap) -> None:
        """Send the requests of all kernels and end the thread, while the memory of the ring exists."""
        if self.memory:
            self.drain(heap)
            _native.proxy_stop()

    def close(self) -> None:
        """Release the memory. The thread has ended with the service."""
        self.memory = ()


proxy = Proxy()
