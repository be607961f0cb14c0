"""The heap in CPU memory: init reserves one address range for the node, with a part of fixed size for each PE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from pyshmem.base import layout
from pyshmem.base.environment import PAGE
from pyshmem.base.far import SHIFT
from pyshmem.base.job import job
from pyshmem.memory.allocator import Allocator
from pyshmem.memory.heap import Heap, heaps
from pyshmem.memory.shared_memory import Segment
from pyshmem.native import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyshmem.base.bootstrap import Comm
    from pyshmem.memory.mailbox import Mailbox, Place

_HUGE_PAGE = 1 << 21
_DL_CPU = 1
STALE = layout.number("POOL_STALE")  # the kind of blocks that tensors hold after the end of their pool


class CpuHeap(Heap):
    """The heap in CPU memory, one per process, named ``cpu``. Its size is fixed."""

    device = "cpu"
    statics = 0  # the address of the block for the static data of a C program

    def __init__(self) -> None:
        self.segment: Segment | None = None
        self.aliases: list[tuple[int, int, int]] = []  # the static data: address, bytes, distance to their place here
        super().__init__()

    def open(
        self, world: Comm, node: Comm, node_pes: Sequence[int], size: int, neighbours: tuple[Mailbox, Sequence[Place]]
    ) -> None:
        """Map the heaps of the node. Collective over ``world``. Errors: OSError, on all PEs.

        neighbours: this PE's mailbox, and the places of the mailboxes of all of the node.
        """
        self._reserve()
        size += job.statics
        stride = -(-(size + self.system_bytes) // _HUGE_PAGE) * _HUGE_PAGE
        self.alignment = max(1 << (size - 1).bit_length(), _HUGE_PAGE)
        segment = Segment(
            world, node, neighbours, stride, size + self.system_bytes - self.staging_bytes, self.alignment
        )
        self.segment = segment
        self.size, self.stride = size, stride
        self.base = segment.address
        self.system = self.base + size
        self.deltas = {pe: (node_rank - segment.node_rank) * stride for node_rank, pe in enumerate(node_pes)}
        far = set(range(job.n_pes)).difference(node_pes)
        self.far_deltas = {pe: (pe + 1 << SHIFT) - self.base for pe in sorted(far)}
        distances = self.deltas | self.far_deltas
        self._table = np.array([distances[pe] for pe in range(job.n_pes)], np.int64)
        self.table = self._table.ctypes.data
        self.adopt(Allocator(size), _DL_CPU, 0)
        if job.statics:
            self.statics = self.base + (self.allocator.allocate(job.statics, PAGE) or 0)

    def close(self) -> None:
        if self.segment is not None:
            # tensors can still be read, also those of the pool
            pooled = ((start - self.base, start - self.base + size) for start, size in _native.pool_blocks(STALE))
            inside = (each for each in pooled if 0 <= each[0] < self.size)
            self.segment.discard(sorted([*self.allocator.live(), *inside]))
        self.segment = None
        self.aliases, self.statics = [], 0
        self._clear()

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """Return a view of the mapping. The view keeps the mapping alive."""
        if self.segment is None:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        offset = address - self.base + self.segment.own
        if not 0 <= offset <= len(self.segment.memory) - nbytes:  # memory that is registered
            return torch.utils.dlpack.from_dlpack(_native.bytes_at(address, nbytes, _DL_CPU, 0))
        return torch.frombuffer(self.segment.memory, dtype=torch.uint8, count=nbytes, offset=offset)

    def unaliased(self, address: int) -> int:
        """Return the address in the heap of static data; any other address as it is."""
        return address + next((away for start, size, away in self.aliases if 0 <= address - start < size), 0)

    def grow(self, routine: str, nbytes: int, alignment: int) -> bool:
        return False


cpu = CpuHeap()
heaps["cpu"] = cpu
