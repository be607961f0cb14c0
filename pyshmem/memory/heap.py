"""Symmetric heaps: the address of each heap, its live allocations and the distances to the heaps of the other PEs.

There is one heap for each kind of memory. The heap "cpu" always exists. The heap "cuda" exists if pyshmem.memory.gpu has
opened it; torch uses this name for the GPUs of both vendors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from pyshmem.base import activity
from pyshmem.base.job import job
from pyshmem.memory.allocator import Allocator
from pyshmem.native import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

Device = Literal["cpu", "cuda"]  # the names of heaps
# torch's C function that describes a tensor, or 0 if this torch has none: then every call takes the slow path.
_TABLE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
_READER = _native.tensor_reader(_TABLE) if _TABLE is not None else 0
AREAS_BYTES = 1 << 20  # for the areas of teams, beside the heap of each PE: see pyshmem.memory.areas
NOTE_BYTES = 1024  # the last of them, in CPU memory, are for pyshmem.diagnosis.host_timeouts
_SCRATCH_BYTES = {"cpu": 4 << 20, "cuda": 128 << 20}  # after the areas; PYSHMEM_SCRATCH changes it
_STAGING_BYTES = 64 << 20  # after the scratch memory; PYSHMEM_STAGING changes it
views: list[tuple[Any, ...]] = []  # one entry per heap, in which the native module finds tensors


class Heap:
    """This PE's heap in one kind of memory, and the mapped heaps of the other PEs. A closed heap holds no address.

    A symmetric address is the address on this PE. The corresponding address on ``pe`` is ``deltas[pe]`` bytes higher. A
    PE that is not in ``deltas`` is not mapped. If it is in ``far_deltas``, its memory is reached by requests: then the
    address plus this number is a place, see far/protocol.h. ``stride`` is the distance between the heaps of neighbours,
    or 0 if the distances differ.
    """

    device: Device
    arch = "interpreter"  # of the device that runs kernels: "nvidia", or AMD's name, such as "gfx942"
    table = record = 0  # addresses that kernels on a GPU need: see pyshmem.device.context
    reduces = False  # whether kernels perform host reductions: each PE has a GPU of its own, all of one kind
    streams = False  # whether work on this memory is enqueued on torch's streams
    alignment = 1  # the largest power of two modulo which the heaps of all PEs begin alike
    index = 0  # of the device, as torch counts
    near: Any = None  # the route to the mapped PEs, which pyshmem.transport sets
    far: Any = None  # the route to the PEs in far_deltas, which pyshmem.transport sets

    def __init__(self) -> None:
        self.sites: dict[int, str] = {}  # in debug mode: the source line of each live allocation, by offset
        # what an allocation is that shmem.free must leave alone, and what frees it, by offset
        self.owned: dict[int, tuple[str, str]] = {}
        self._clear()

    def _clear(self) -> None:
        self.size = self.stride = self.base = self.system = 0
        self.system_bytes = self.scratch_bytes = self.staging_bytes = 0
        self.deltas: dict[Any, int] = {}
        self.far_deltas: dict[Any, int] = {}
        self.sites.clear()
        self.owned.clear()
        self.adopt(Allocator(0), 0, 0)

    def adopt(self, allocator: Allocator, device_type: int, index: int) -> None:
        """Use ``allocator``. device_type and index identify this memory as DLPack does."""
        self.index, self.device_type, self.allocator = index, device_type, allocator
        live = allocator.starts, allocator.ends
        view = (
            *(_READER, torch.Tensor, self.base, *live, device_type, index, self),
            *(self.deltas, self.near, self.far_deltas, self.far),
        )
        views[:] = [view, *(each for each in views if each[7] is not self)]

    def _reserve(self) -> None:
        """Set the sizes of what lies beside the heap: areas, which begin at ``system``, scratch memory, staging memory."""
        self.scratch_bytes = _whole_pages(_SCRATCH_BYTES[self.device] if job.scratch is None else job.scratch)
        self.staging_bytes = _whole_pages(_STAGING_BYTES if job.staging is None else job.staging)
        self.system_bytes = AREAS_BYTES + self.scratch_bytes + self.staging_bytes

    def tensor(self, address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor on mapped memory of this PE or another PE. It does not keep the allocation alive."""
        count = 1
        for extent in shape:
            count *= extent
        if count == 0:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        return self.bytes_at(address, count * dtype.itemsize).view(dtype).view(tuple(shape))

    def holds(self, address: int) -> bool:
        """Return whether the address lies in this heap on any mapped PE; it need not be live."""
        return any(0 <= address - delta - self.base < self.size for delta in self.deltas.values())

    def place(self, offset: int) -> str:
        """Name a place in an error, as "heap offset 16"; in debug mode also as " (in 0 to 64, allocated at heat.py:12)"."""
        block = self.allocator.nearest(offset) if self.sites else None
        inside = block is not None and block[0] <= offset < block[1]
        return f"heap offset {offset}" + (f" (in {self.extent(block)})" if block and inside else "")

    def extent(self, block: tuple[int, int]) -> str:
        """Name an allocation in an error, as "0 to 64"; in debug mode also as ", allocated at heat.py:12"."""
        site = self.sites.get(block[0])
        return f"{block[0]} to {block[1]}" + (f", allocated at {site}" if site else "")

    def note_use(self) -> None:
        """Note in the page of pyshmem.base.activity how much of the heap is in use."""
        activity.own.heap(int(self.streams), self.allocator.used, self.size)

    def enter(self) -> None:
        """Make this heap's GPU the current device of the calling thread. Does nothing for CPU memory."""

    def synchronize(self) -> None:
        """Wait for the work on torch's current stream. Does nothing for CPU memory."""

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """Return a tensor of bytes on mapped memory."""
        raise NotImplementedError

    def grow(self, routine: str, nbytes: int, alignment: int) -> bool:
        """Extend the heap on all PEs until ``nbytes`` fit. Return False if that is impossible. Collective over all PEs."""
        raise NotImplementedError


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // 4096) * 4096


heaps: dict[str, Heap] = {}  # the open heaps, by the device type of their tensors


def default() -> Heap:
    """Return the heap of allocations that name no device."""
    return heaps[job.device]
