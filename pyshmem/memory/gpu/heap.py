"""The symmetric heap in GPU memory: how it opens, grows and ends.

A symmetric array is a block of it. host/allocation.py takes the block's offset from ``allocator``, which is the same on all
PEs, calls ``grow`` if no block is free, and makes the tensor by ``tensor``, through DLPack. mapping.py gets the memory from
the driver and maps it on the other PEs of the node.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from pyshmem.base.errors import HeapExhaustedError, WaitTimeoutError, refuse
from pyshmem.base.far import GPU, SHIFT
from pyshmem.base.job import job
from pyshmem.base.kernel_timeouts import AREA, LIMIT, collective_of, describe_record
from pyshmem.memory import areas
from pyshmem.memory.allocator import Allocator
from pyshmem.memory.gpu.driver import Driver, DriverError
from pyshmem.memory.gpu.mapping import Choice, IpcMapping, VmmMapping
from pyshmem.memory.heap import Heap
from pyshmem.native import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyshmem.base.bootstrap import Comm

_DL_GPU = {"cuda": 2, "hip": 10}
# the size of the heap at init, and its least growth: one growth takes about 3 ms
_FIRST_BYTES = _CHUNK_BYTES = 64 << 20
raw_stream = torch._C._cuda_getCurrentRawStream if hasattr(torch._C, "_cuda_getCurrentRawStream") else None


class _Thread(threading.local):
    ready = False  # whether this GPU is the current device of the thread


class GpuHeap(Heap):
    """This PE's heap in GPU memory. One per process, named ``gpu``, opened by pyshmem.start.gpu."""

    device = "cuda"
    streams = True
    shared = False  # whether some PEs share a GPU
    in_turn = False  # whether PEs that share one take turns on it, see Driver.takes_turns
    chiplets = 1  # the parts of this GPU with an L2 cache of their own
    divided = False  # whether PEs of one host are on several nodes, because they do not map each other's GPU memory

    def open(self, driver: Driver, world: Comm, node: Comm, node_pes: Sequence[int], cap: int, choice: Choice) -> None:
        """Map the heaps of the node. Collective over ``world``. Errors: DriverError or OSError, on all PEs.

        cap: the most bytes of a PE's heap.
        """
        self.driver, self.choice, self.cap = driver, choice, cap
        self.thread = _Thread()
        self.index = driver.device
        self._reserve()
        most = cap + self.system_bytes
        self.mapping: VmmMapping | IpcMapping
        if choice.way == "vmm":
            self.mapping = VmmMapping(driver, world, node, most, choice.kind)
            try:
                self.mapping.grow(min(_FIRST_BYTES + self.system_bytes, most), self.stream())
            except (DriverError, OSError):
                self.mapping.close()
                raise
        else:
            self.mapping = IpcMapping(driver, world, node, most, choice.kind, self.stream())
        start, self.alignment = self.mapping.base, self.mapping.alignment
        self.system, self.base, self.stride = start, start + self.system_bytes, self.mapping.stride
        self.deltas = {pe: self.mapping.starts[node_rank] - start for node_rank, pe in enumerate(node_pes)}
        far = set(range(job.n_pes)).difference(node_pes)
        self.far_deltas = {pe: (pe + 1 << SHIFT | GPU) - start for pe in sorted(far)}
        self.size = min(self.mapping.size - self.system_bytes, cap) // 64 * 64
        self.adopt(Allocator(self.size, self.base % self.alignment), _DL_GPU[driver.vendor], self.index)
        self._prepare()

    def _prepare(self) -> None:
        """Allocate the memory at ``table`` and ``record``, which kernels use."""
        reached = self.far_deltas | self.deltas  # with a far PE's distance, an address becomes a place
        distances = [reached[pe] for pe in range(job.n_pes)]
        self._table = torch.tensor([*distances, 0], device=f"cuda:{self.index}")
        self.table = self._table.data_ptr()
        self.released = self.table + 8 * job.n_pes  # a word that streams write for the release before it
        # a kernel writes here when a wait times out, see pyshmem.base.kernel_timeouts
        self._record = torch.zeros(16, dtype=torch.int64, device="cpu", pin_memory=True)
        self.record = self._record.data_ptr()
        self._recorded = self._record.numpy()
        torch.cuda.synchronize(self.index)

    def close(self) -> None:
        """Release the memory. Every PE has passed a barrier after its last access, and no operation is pending."""
        if not self.size:
            return
        self.mapping.close()
        del self._table, self.thread
        self._clear()

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """Return a view of the mapping. After finalize the view is invalid, and a kernel that uses it faults."""
        return torch.utils.dlpack.from_dlpack(_native.bytes_at(address, nbytes, self.device_type, self.index))

    def grow(self, routine: str, nbytes: int, alignment: int) -> bool:
        missing = self.allocator.missing(nbytes, alignment)
        if missing > min(self.cap - self.size, self.mapping.most):
            return False
        try:
            self.mapping.grow(max(missing, _CHUNK_BYTES), self.stream())  # type: ignore[union-attr]
        except (DriverError, OSError) as error:
            got = f"{nbytes} bytes, {missing} more than are free; the driver: {error}"
            refuse(
                HeapExhaustedError, routine, "size", got, "free memory on the GPU of every PE; the heap is unchanged"
            )
        end = self.system_bytes + self.size
        self.size = min(self.mapping.size - self.system_bytes, self.cap) // 64 * 64
        _native.far_extend_gpu(self.system_bytes + self.size)
        if self.far_deltas:
            self.far.extend(end, self.system_bytes + self.size)
        self.allocator.extend(self.size)
        return True

    def enter(self) -> None:
        """Make this GPU current at a thread's first call: CUDA and HIP start every thread on device 0."""
        if not self.thread.ready:
            torch.cuda.set_device(self.index)
            self.thread.ready = True

    def stream(self) -> int:
        """Return torch's current stream of the calling thread."""
        if not self.thread.ready:
            self.enter()
        return int(raw_stream(self.index))  # type: ignore[misc]

    def synchronize(self) -> None:
        self.driver.synchronize(self.stream())

    def raise_recorded(self) -> None:
        """Errors: WaitTimeoutError if a wait in a kernel of this PE has timed out. It is raised once.

        The team of a collective makes no more: its next call would meet the others' present one.
        """
        if self._recorded[0]:
            words = self._recorded.tolist()
            self._recorded[:] = 0
            collective, wires = collective_of(words), areas.wires.get(words[AREA])
            if collective and wires is not None:
                text = f"{collective}\na time-out in {words[LIMIT] / 1e9:g} s"
                _native.leave(wires, job.timeout, job.spins, text.encode())
            raise WaitTimeoutError(describe_record(words, self.place))


gpu = GpuHeap()
