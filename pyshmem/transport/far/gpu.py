"""The routes to far PEs for arrays in GPU memory. The data pass through pinned CPU memory, unless a fabric takes GPU memory.

A request is ordered after the work on torch's current stream, as an operation on the GPU memory of a near PE is: the call
waits for that work. The service of the target executes the request on its GPU, see far/execute_gpu.h.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from pyshmem.base.agreement import gather
from pyshmem.base.far import STAGE
from pyshmem.base.job import job
from pyshmem.kernels.compiled import refuse_launch
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.gpu.heap import gpu
from pyshmem.native import _native
from pyshmem.transport.far import own_stream
from pyshmem.transport.far.cpu import Far
from pyshmem.transport.far.fabric import fabric
from pyshmem.transport.near.bridge import WORDS, spread
from pyshmem.transport.route import Route

if TYPE_CHECKING:
    from pyshmem.memory.gpu.heap import GpuHeap

_IFACES = {"cuda": 1, "hip": 2}  # FI_HMEM_CUDA, FI_HMEM_ROCR
_CHUNK = 1 << 22  # the bytes of a put from GPU memory or a get into it that are in pinned memory at once


class FromCpu(Far):
    """The route to the GPU memory of far PEs, for private arrays in CPU memory."""

    def __init__(self, heap: GpuHeap) -> None:
        super().__init__()
        self.heap = heap
        self.put = self.store = self._later(Far.put)
        self.put_strided = self._later(Far.put_strided)
        self.get = self._later(Far.get)
        self.get_strided = self._later(Far.get_strided)
        self.atomics = {
            name: {dtype: self._later(call) for dtype, call in table.items()} for name, table in Far.atomics.items()
        }

    def _wait(self) -> None:
        """Wait for the work on the current stream. Errors: ArgumentError if it captures a graph."""
        self.heap.near.refuse_capture("a call to a PE of another node")
        self.heap.synchronize()

    def _later(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._wait()
            return request(*arguments)

        return call

    def get_nbi(self, dest: int, place: int, nbytes: int, ctx: Any, private: Any) -> None:
        self._wait()
        cpu.far.get_nbi(dest, place, nbytes, ctx, private)

    def fetch(self, place: int, nbytes: int) -> int:
        self._wait()
        return super().fetch(place, nbytes)

    def signal(self, update: str, place: int, value: int) -> None:
        self._wait()
        super().signal(update, place, value)

    def put_signal(self, place: int, source: int, nbytes: int, home: Route, update: str, word: int, value: int) -> None:
        self.put(place, source, nbytes)
        home.signal(update, word, value)  # another request to the same PE


class FromGpu(FromCpu):
    """The route to far PEs, for private arrays in GPU memory. The symmetric memory is of either kind."""

    def __init__(self, heap: GpuHeap) -> None:
        super().__init__(heap)
        self.put, self.get = self._put, self._get
        self.put_strided, self.get_strided = self._put_strided, self._get_strided
        self.from_cpu = FromCpu(heap)
        self._staged = threading.local()  # the pinned memory of each thread
        self._stream: torch.cuda.Stream | None = None  # of the service thread
        self._service: torch.Tensor | None = None  # its pinned memory
        self._scratch: torch.Tensor | None = None  # GPU memory for its first launches

    def open(self) -> None:
        """Let the service thread execute requests on the GPU heap. Collective over the job. Errors: LaunchError."""
        from pyshmem.kernels import requests  # imports triton, which programs on one node may not need

        assert job.comm is not None
        heap = self.heap
        own_stream.enter(heap)
        self._stream = torch.cuda.Stream(heap.index, priority=-1)  # type: ignore[no-untyped-call]
        self._service = torch.zeros(STAGE + 64, dtype=torch.uint8, device="cpu", pin_memory=True)
        self._scratch = torch.zeros(4, dtype=torch.int64, device=heap.device)
        heap.synchronize()
        gather(job.comm, lambda: self._open_native(requests.plans()))
        self.extend(0, heap.system_bytes + heap.size)

    def extend(self, first: int, end: int) -> None:
        """Follow a growth of the heap by the bytes from ``first`` to ``end`` of it. Collective over the job."""
        fabric.share(first, end, _IFACES[self.heap.driver.vendor])

    def _open_native(self, plans: bytes) -> None:
        """Give the service its memory and its kernels, which it launches once. Errors: LaunchError."""
        heap, driver = self.heap, self.heap.driver
        assert self._stream is not None and self._service is not None and self._scratch is not None
        calls = (driver.address_of(name) for name in ("relax", "copy", "query"))
        code = _native.far_open_gpu(
            *(heap.system, heap.system_bytes + heap.size, driver.vendor == "hip"),
            *(*driver.attachment(), *calls, int(self._stream.cuda_stream)),
            *(self._service.data_ptr(), self._scratch.data_ptr(), plans),
        )
        if code:
            refuse_launch("init", "the service's kernels", code)

    def close(self) -> None:
        """Release the memory. The service thread has ended."""
        own_stream.leave(self.heap)
        self._stream = self._service = self._scratch = None

    def get_nbi(self, dest: int, place: int, nbytes: int, ctx: Any, private: Any) -> None:
        self._get(dest, place, nbytes)

    def _put(self, place: int, source: int, nbytes: int) -> None:
        near = self.heap.near
        if nbytes not in WORDS and _native.fabric_takes(source, place, nbytes):
            self._wait()
            _native.far_put(place, source, nbytes)
            return
        if nbytes in WORDS:  # which some copy engines tear
            _native.far_put(place, near.fetch(source, nbytes), nbytes)
            return
        ready: tuple[int, int, int] | None = None  # the previous chunk: (place, its address in pinned memory, bytes)
        for first, size, at, stream in self._chunks(nbytes):
            self.heap.driver.copy(at, source + first, size, stream)
            if ready:  # while the copy engine copies this one
                _native.far_put(*ready)
            self.heap.driver.synchronize(stream)
            ready = place + first, at, size
        if ready:
            _native.far_put(*ready)

    def _get(self, dest: int, place: int, nbytes: int) -> None:
        if nbytes not in WORDS and _native.fabric_takes(dest, place, nbytes):
            self._wait()
            _native.far_get(dest, place, nbytes)
            return
        asked: tuple[int, ...] = ()  # the previous chunk: the arguments of _take
        for first, size, at, stream in self._chunks(nbytes):
            number = _native.far_ask(at, place + first, size)
            if asked:  # while the data of this one travel
                self._take(number, *asked)
            asked = place, number, dest + first, at, size, stream
        if asked:
            self._take(number, *asked)

    def _take(self, newest: int, place: int, number: int, dest: int, at: int, nbytes: int, stream: int) -> None:
        """Wait for a chunk that was asked for, and copy it to the GPU. newest: the number of the last one asked for."""
        _native.far_await(place, number, newest)
        self.heap.driver.copy(dest, at, nbytes, stream)
        self.heap.driver.synchronize(stream)

    def _chunks(self, nbytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (first byte, bytes, address of pinned memory, current stream) of each chunk; two addresses alternate."""
        self.heap.near.refuse_capture("a call to a PE of another node")
        stream, staged = self.heap.stream(), self._staged
        if not hasattr(staged, "memory"):
            staged.memory = torch.empty(2 * _CHUNK, dtype=torch.uint8, device="cpu", pin_memory=True)
        at = staged.memory.data_ptr()
        for first in range(0, nbytes, _CHUNK):
            yield first, min(_CHUNK, nbytes - first), at + first % (2 * _CHUNK), stream

    def _put_strided(self, place: int, source: int, place_step: int, source_step: int, item: int, count: int) -> None:
        self._wait()
        if count:
            packed = spread(self.heap, source, source_step, item, count, source | source_step).cpu().contiguous()
            Far.put_strided(place, packed.data_ptr(), place_step, item, item, count)

    def _get_strided(self, dest: int, place: int, dest_step: int, place_step: int, item: int, count: int) -> None:
        self._wait()
        if count:
            there = spread(self.heap, dest, dest_step, item, count, dest | dest_step)
            packed = torch.empty(there.shape, dtype=there.dtype, device="cpu")
            Far.get_strided(packed.data_ptr(), place, item, place_step, item, count)
            there.copy_(packed)
            self.heap.synchronize()


gpu.far = FromGpu(gpu)
