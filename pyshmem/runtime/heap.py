"""Symmetric heaps: where one is, what is live in it, and how far each peer's copy is away. The one in CPU memory.

Each kind of memory has one: "cpu" always, "cuda" where pyshmem.runtime.gpu opened it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pyshmem.runtime import _native
from pyshmem.runtime.allocator import Allocator
from pyshmem.runtime.job import job
from pyshmem.runtime.shared_memory import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mpi4py import MPI

# torch's C function that describes a tensor, 0 for a torch that has none: then every call takes the long way.
_TABLE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
_READER = _native.tensor_reader(_TABLE) if _TABLE is not None else 0
_HUGE_PAGE = 1 << 21
AREAS_BYTES = 1 << 20  # of each PE's memory, beside the user's part: the teams' areas, see pyshmem.runtime.areas
_SCRATCH_BYTES = {"cpu": 4 << 20, "cuda": 128 << 20}  # after them, unless PYSHMEM_SCRATCH says otherwise
DL_CPU = 1
views: list[tuple[Any, ...]] = []  # what the native module needs to find a tensor in a heap


class Heap:
    """This PE's heap of one kind of memory and the way to its peers'. Closed, it has no address: every one is refused.

    A symmetric address is the local one. ``deltas[pe]`` bytes further is the same place on ``pe``; a PE that is not in
    it is not mapped. ``stride`` is the distance between neighbours, 0 where it differs.
    """

    device = ""
    arch = "interpreter"  # where kernels on it run: "nvidia", or AMD's architecture such as "gfx942"
    table = record = 0  # the GPU's: see pyshmem.device.context
    reduces = False  # whether host reductions are kernels: every PE has a GPU of its own, all of one kind
    index = 0  # which of the device's kind, as torch counts
    bridges: dict[str, Any]  # the GPU's heap: by heap, copies between that and the other kind of memory

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
        """Take ``allocator``; device_type and index as DLPack names this memory."""
        self.index, self.device_type, self.allocator = index, device_type, allocator
        starts, ends = allocator.starts, allocator.ends
        view = (_READER, torch.Tensor, self.base, starts, ends, device_type, index, self, self.deltas)
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

    # ---- what each kind of memory does its own way ----

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        raise NotImplementedError

    # copy(dest, source, nbytes): within this kind of memory; done, or for GPUs enqueued on torch's current stream.
    # store: the same of one element from private CPU memory, by a single store where it has at most 8 bytes.
    # copy_strided(dest, source, dest step, source step, item, count): items of so many bytes, their starts so far apart.
    copy: Callable[[int, int, int], None]
    store: Callable[[int, int, int], None]
    copy_strided: Callable[[int, int, int, int, int, int], None]

    def copy_nbi(self, dest: int, source: int, nbytes: int, ctx: Any, private: Any) -> None:
        """Copy that nobody waits for before the quiet of ``ctx``, None for the default context.

        private: the program's array, which is kept until then: nothing else may be put in its memory.
        """
        raise NotImplementedError

    def amo(
        self,
        op: str,
        dtype: torch.dtype,
        address: int,
        value: Any = 0,
        cond: Any = 0,
        fetch: bool = True,
        ordered: bool = False,
    ) -> Any:
        """Apply an atomic on any PE's word: what was there, or None where nobody asks. Not for CPU memory, see amo.

        ordered: after all that was enqueued before it, without a fence.
        """
        raise NotImplementedError

    def fetch(self, address: int, nbytes: int) -> int:
        """Where in CPU memory these bytes of any PE can be read; until the next fetch or look of this thread."""
        raise NotImplementedError

    def look(self, address: int, nbytes: int) -> int:
        """fetch of this PE's own bytes that does not wait for work of the program on a GPU."""
        raise NotImplementedError

    def order(self) -> None:
        """Let what this PE starts from now on come after what it has started, on every stream."""
        raise NotImplementedError

    def settle(self, ctx: Any = None) -> None:
        """Complete what this PE has enqueued, and for None what every context has."""
        raise NotImplementedError

    def drain(self) -> None:
        """Complete all this PE's work on the device, whatever stream it is on."""
        raise NotImplementedError

    def grow(self, routine: str, nbytes: int) -> bool:
        """Make room for ``nbytes`` more, on all PEs; False where that is not to be had. Collective over the node."""
        raise NotImplementedError


class CpuHeap(Heap):
    """The heap in CPU memory: one range for the node, of a size that is reserved at init. Copies are done on return."""

    device = "cpu"
    copy = store = staticmethod(_native.copy)
    copy_strided = staticmethod(_native.copy_strided)

    def __init__(self) -> None:
        self.segment: Segment | None = None
        super().__init__()

    def open(self, node: MPI.Intracomm, node_pes: Sequence[int], size: int) -> None:
        """Map the node's heaps: collective over the node. Errors: OSError, on every PE alike."""
        self._reserve()
        stride = -(-(size + self.system_bytes) // _HUGE_PAGE) * _HUGE_PAGE
        segment = Segment(node, stride)
        whole = torch.frombuffer(segment.memory, dtype=torch.uint8).data_ptr()
        self.segment = segment
        self.size, self.stride = size, stride
        self.base = whole + segment.slot * stride
        self.system = self.base + size
        self.deltas = {pe: (slot - segment.slot) * stride for slot, pe in enumerate(node_pes)}
        self.adopt(Allocator(size), DL_CPU, 0)

    def close(self) -> None:
        if self.segment is not None:
            self.segment.discard()
        self.segment = None
        self._clear()

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """A view of the mapping, which it keeps alive."""
        if self.segment is None:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        offset = address - self.base + self.segment.slot * self.stride
        return torch.frombuffer(self.segment.memory, dtype=torch.uint8, count=nbytes, offset=offset)

    def copy_nbi(self, dest: int, source: int, nbytes: int, ctx: Any, private: Any) -> None:
        _native.copy(dest, source, nbytes)

    def fetch(self, address: int, nbytes: int) -> int:
        return address

    look = fetch

    def settle(self, ctx: Any = None) -> None:
        """Nothing is ever under way; what stands before is seen before what follows."""
        _native.fence()

    drain = order = settle

    def grow(self, routine: str, nbytes: int) -> bool:
        return False


cpu = CpuHeap()
heaps: dict[str, Heap] = {"cpu": cpu}  # those that are open, by the device that tensors name


def default() -> Heap:
    """The heap of allocations that name none."""
    return heaps[job.device]
