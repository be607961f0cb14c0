"""The symmetric heap in CPU memory: where it is, what is live in it, and how far each peer's copy is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pyshmem.host import _native
from pyshmem.host.allocator import Allocator
from pyshmem.host.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

# torch's C function that describes a tensor, 0 for a torch that has none: then every call takes the long way.
_TABLE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
_READER = _native.tensor_reader(_TABLE) if _TABLE is not None else 0
_HUGE_PAGE = 1 << 21
SYSTEM_BYTES = 1 << 16  # after the user's part of each segment: the teams' barriers, see pyshmem.host.teams


class Heap:
    """This PE's heap and the way to its peers'. Empty until ``open``, and after ``close``: then every address is refused.

    A symmetric address is the local one. ``deltas[pe]`` bytes further is the same place on ``pe``; a PE that is not in
    it is not mapped. ``view`` is what the native module needs to find a tensor in the heap.
    """

    __slots__ = (
        "allocator",
        "base",
        "deltas",
        "device",
        "segment",
        "sites",
        "size",
        "stride",
        "system",
        "view",
    )

    def __init__(self, device: str) -> None:
        self.device = device
        self.sites: dict[int, str] = {}  # debug mode: where each live offset was allocated
        self.deltas: dict[Any, int] = {}
        self.segment: Segment | None = None
        self.close()

    def open(self, node: MPI.Intracomm, node_pes: Sequence[int], size: int) -> None:
        """Map the node's heaps: collective over the node. Errors: OSError, on every PE alike."""
        stride = -(-(size + SYSTEM_BYTES) // _HUGE_PAGE) * _HUGE_PAGE
        segment = Segment(node, stride)
        whole = torch.frombuffer(segment.memory, dtype=torch.uint8).data_ptr()
        self.segment = segment
        self.size, self.stride = size, stride
        self.base = whole + segment.slot * stride
        self.system = self.base + size
        self.deltas = {pe: (slot - segment.slot) * stride for slot, pe in enumerate(node_pes)}
        self._adopt(Allocator(size))

    def close(self) -> None:
        if self.segment is not None:
            self.segment.discard()
        self.segment = None
        self.size = self.stride = self.base = self.system = 0
        self.deltas = {}
        self.sites.clear()
        self._adopt(Allocator(0))

    def _adopt(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.view = (_READER, torch.Tensor, self.base, allocator.starts, allocator.ends)

    def tensor(self, address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor on mapped memory, this PE's or a peer's. It keeps the mapping alive, not the allocation."""
        count = 1
        for extent in shape:
            count *= extent
        if count == 0 or self.segment is None:
            return torch.empty(tuple(shape), dtype=dtype)
        offset = address - self.base + self.segment.slot * self.stride
        data = torch.frombuffer(self.segment.memory, dtype=torch.uint8, count=count * dtype.itemsize, offset=offset)
        return data.view(dtype).view(tuple(shape))


cpu = Heap("cpu")
