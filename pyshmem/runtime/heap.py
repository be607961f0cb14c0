"""Symmetric heaps: where one lies, what is live in it, and how far away each peer's copy is.

There is one heap for each kind of memory: "cpu" always, "cuda", as torch names the GPUs of both vendors, where
pyshmem.runtime.gpu has opened it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pyshmem.runtime import _native
from pyshmem.runtime.allocator import Allocator
from pyshmem.runtime.job import job

if TYPE_CHECKING:
    from collections.abc import Sequence

# torch's C function that describes a tensor, 0 for a torch that has none: then every call takes the long way.
_TABLE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
_READER = _native.tensor_reader(_TABLE) if _TABLE is not None else 0
AREAS_BYTES = 1 << 20  # of each PE's memory, beside the user's part, for the areas of teams: see pyshmem.runtime.areas
_SCRATCH_BYTES = {"cpu": 4 << 20, "cuda": 128 << 20}  # after the areas, unless PYSHMEM_SCRATCH says otherwise
views: list[tuple[Any, ...]] = []  # what the native module needs to find a tensor in a heap


class Heap:
    """This PE's heap in one kind of memory, and where its peers' heaps are mapped. A closed heap holds no address.

    A symmetric address is the local one. ``deltas[pe]`` bytes further lies the same place on ``pe``; a PE that is not in
    ``deltas`` is not mapped. ``stride`` is the distance between neighbours, 0 where it differs.
    """

    device = ""
    arch = "interpreter"  # where kernels on it run: "nvidia", or AMD's architecture such as "gfx942"
    table = record = 0  # addresses that kernels on a GPU need: see pyshmem.device.context
    reduces = False  # whether host reductions are kernels: every PE has a GPU of its own, and all are of one kind
    streams = False  # whether work on this memory is enqueued on torch's streams
    index = 0  # which of the device's kind, as torch counts
    direct: Any = None  # the route to the PEs that are mapped: pyshmem.transport fills it in

    def __init__(self) -> None:
        self.sites: dict[int, str] = {}  # debug mode: where each live offset was allocated
        self._clear()

    def _clear(self) -> None:
        self.size = self.stride = self.base = self.system = 0
        self.system_bytes = self.scratch_bytes = 0
        self.deltas: dict[Any, int] = {}
        self.sites.clear()
        self.adopt(Allocator(0), 0, 0)

    def adopt(self, allocator: Allocator, device_type: int, index: int) -> None:
        """Take ``allocator``; device_type and index name this memory as DLPack does."""
        self.index, self.device_type, self.allocator = index, device_type, allocator
        live = allocator.starts, allocator.ends
        view = (_READER, torch.Tensor, self.base, *live, device_type, index, self, self.deltas, self.direct)
        views[:] = [view, *(each for each in views if each[7] is not self)]

    def _reserve(self) -> None:
        """Fix how much of each PE's memory is beside the user's part: at ``system`` areas, and after them scratch."""
        asked = job.scratch
        self.scratch_bytes = -(-(_SCRATCH_BYTES[self.device] if asked is None else asked) // 4096) * 4096
        self.system_bytes = AREAS_BYTES + self.scratch_bytes

    def tensor(self, address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor on mapped memory, this PE's or a peer's. It keeps the allocation alive neither here nor there."""
        count = 1
        for extent in shape:
            count *= extent
        if count == 0:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        return self.bytes_at(address, count * dtype.itemsize).view(dtype).view(tuple(shape))

    def holds(self, address: int) -> bool:
        """Whether the address is one of this heap's, this PE's or a peer's, live or not."""
        return any(0 <= address - delta - self.base < self.size for delta in self.deltas.values())

    def enter(self) -> None:
        """Make this heap's device the calling thread's, where that means something."""

    def synchronize(self) -> None:
        """Wait for what torch has enqueued on the current stream, where this memory has streams."""

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """Mapped memory as a tensor of bytes."""
        raise NotImplementedError

    def grow(self, routine: str, nbytes: int) -> bool:
        """Make room for ``nbytes`` more, on all PEs; False where there is none. Collective over the world."""
        raise NotImplementedError


heaps: dict[str, Heap] = {}  # those that are open, by the device that tensors name


def default() -> Heap:
    """The heap of allocations that name none."""
    return heaps[job.device]
