"""The symmetric heap in GPU memory: the peers' mapped beside ours, copies by the copy engine in the order of a stream.

A put, a store, an atomic is enqueued on torch's current stream; a non-blocking one on a stream of its context. Host waits
look at the memory through a stream of the heap's own, so they never queue behind the program's kernels.
"""

from __future__ import annotations

import ctypes
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from pyshmem.host.amo import FETCH
from pyshmem.runtime import _native
from pyshmem.runtime.allocator import Allocator
from pyshmem.runtime.errors import ArgumentError, HeapExhaustedError, WaitTimeoutError, refuse
from pyshmem.runtime.gpu.driver import Driver, DriverError
from pyshmem.runtime.gpu.mapping import Choice, IpcMapping, VmmMapping
from pyshmem.runtime.heap import Heap, cpu
from pyshmem.runtime.job import job
from pyshmem.transport.bridge import WORDS, Bridge, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

_DL_GPU = {"cuda": 2, "hip": 10}
_FIRST_BYTES = _CHUNK_BYTES = 64 << 20  # the heap's size at init, and the least it grows by: a growth costs about 3 ms
_UNLIKELY, _NOT_EQUAL = 0x5BD1E995A7F3C2D9, 1  # what a landing holds before the GPU writes there; CMP.NE
_LOOK_SECONDS = 0.01  # after which a landing that has not changed is taken as it is, if the stream is done
_MOST_KEPT = 64  # arrays of non-blocking calls, after which a look is taken whether they are done
_IDLE_SECONDS = 1e-3  # how long a look waits for stores of the current stream
_raw_stream = torch._C._cuda_getCurrentRawStream if hasattr(torch._C, "_cuda_getCurrentRawStream") else None


class _Thread(threading.local):
    """What each thread has of its own."""

    ready = False  # it works on this GPU
    stream: torch.cuda.Stream | None = None  # for what it waits for
    landing: torch.Tensor | None = None  # pinned memory that the GPU writes for it
    at = room = 0  # its address and its bytes


class GpuHeap(Heap):
    """This PE's part of GPU memory and its peers'. One per process, opened by pyshmem.runtime.gpu.opening."""

    device = "cuda"
    shared = False  # whether some PEs of the node have one GPU together

    def open(self, driver: Driver, node: MPI.Intracomm, node_pes: Sequence[int], cap: int, choice: Choice) -> None:
        """Map the node's heaps; ``cap``: the most bytes of a PE. Errors: DriverError, OSError, on every PE alike."""
        self.driver, self.choice, self.cap = driver, choice, cap
        self._thread = _Thread()
        self.index = driver.device
        self._reserve()
        most = cap + self.system_bytes
        self.mapping: VmmMapping | IpcMapping
        if choice.way == "vmm":
            self.mapping = VmmMapping(driver, node, most, choice.kind)
            try:
                self.mapping.grow(min(_FIRST_BYTES + self.system_bytes, most), self._stream())
            except (DriverError, OSError):
                self.mapping.close()
                raise
        else:
            self.mapping = IpcMapping(driver, node, most, choice.kind, self._stream())
        start = self.mapping.base
        self.system, self.base, self.stride = start, start + self.system_bytes, self.mapping.stride
        self.deltas = {pe: self.mapping.starts[slot] - start for slot, pe in enumerate(node_pes)}
        self.size = min(self.mapping.size - self.system_bytes, cap) // 64 * 64
        self.adopt(Allocator(self.size), _DL_GPU[driver.vendor], self.index)
        self._prepare()

    def _prepare(self) -> None:
        """What the calls use again and again: streams, and pinned memory that the GPU reads and writes."""
        self.bridges = {"cpu": Bridge(self, cpu), "cuda": Bridge(self, self)}
        self.moves_words = self.driver.vendor == "hip"
        self._begin()
        self.copy = self._copy
        if self.driver.vendor == "cuda":
            self.copy = _native.copier(self.driver.copy_function, _raw_stream, self.index, self._used, self._copy)
        self._looking = torch.cuda.Stream(self.index)  # type: ignore[no-untyped-call]
        self._look_stream = self._looking.cuda_stream
        self._table = torch.tensor([self.deltas.get(pe, 0) for pe in range(job.n_pes)], device=f"cuda:{self.index}")
        self.table = self._table.data_ptr()
        # what a kernel that gave up waiting wrote, see pyshmem.runtime.timeouts
        self._record = torch.zeros(16, dtype=torch.int64, device="cpu", pin_memory=True)
        self.record = self._record.data_ptr()
        self._recorded = self._record.numpy()
        torch.cuda.synchronize(self.index)

    def _begin(self) -> None:
        """Nothing is under way."""
        self._used: set[int] = set()  # streams with puts not yet waited for
        self._fenced = False  # whether a fence came after the last quiet
        self._sides: dict[Any, torch.cuda.Stream] = {}  # of non-blocking calls, by context
        self._kept: dict[Any, list[Any]] = {}  # arrays of those calls, by context

    def close(self) -> None:
        """Give all back. Every PE has passed a barrier after its last use."""
        if not self.size:
            return
        self.drain()
        self.mapping.close()
        self._sides.clear()
        self._kept.clear()
        del self._table, self._looking, self._thread
        self._clear()

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """A view of the mapping. It dangles after finalize: a kernel that uses it then faults."""
        return torch.utils.dlpack.from_dlpack(_native.bytes_at(address, nbytes, self.device_type, self.index))

    def grow(self, routine: str, nbytes: int) -> bool:
        free_at_end = next((high - low for low, high in self.allocator.holes() if high == self.size), 0)
        missing = nbytes - free_at_end
        if missing > min(self.cap - self.size, self.mapping.most):
            return False
        try:
            self.mapping.grow(max(missing, _CHUNK_BYTES), self._stream())  # type: ignore[union-attr]
        except (DriverError, OSError) as error:
            got = f"{nbytes} bytes, {missing} more than are free, and from the driver: {error}"
            refuse(HeapExhaustedError, routine, "size", got, "memory for it on every PE's GPU; all is as before")
        self.size = min(self.mapping.size - self.system_bytes, self.cap) // 64 * 64
        self.allocator.extend(self.size)
        return True

    # ---- copies ----

    def enter(self) -> None:
        """A thread's first call makes this GPU its own: CUDA and HIP begin every thread on device 0."""
        if not self._thread.ready:
            torch.cuda.set_device(self.index)
            self._thread.ready = True

    def _stream(self) -> int:
        self.enter()
        return int(_raw_stream(self.index))  # type: ignore[misc]

    def use_stream(self) -> int:
        """The current stream, which quiet will wait for."""
        if not self._thread.ready:
            self.enter()
        stream: int = _raw_stream(self.index)  # type: ignore[misc]
        if stream not in self._used:
            self._used.add(stream)
        return stream

    def _copy(self, dest: int, source: int, nbytes: int) -> None:
        self._copy_whole(dest, source, nbytes, self.use_stream())

    def _copy_whole(self, dest: int, source: int, nbytes: int, stream: int) -> None:
        """Copy with no word torn: AMD's copies move bytes, so there a kernel moves single words."""
        if self.moves_words and nbytes in WORDS and not (dest | source) & (nbytes - 1):
            _hostops().read(source, nbytes, dest, stream, self.index)
        else:
            self.driver.copy(dest, source, nbytes, stream)

    def copy_nbi(self, dest: int, source: int, nbytes: int, ctx: Any, private: Any) -> None:
        """On the context's own stream, after what is on the current one now, which may be making the source.

        torch would give the memory of an array that is let go of to the next one on the current stream.
        """
        side = self._sides.get(ctx)
        if side is None:
            side = self._sides[ctx] = torch.cuda.Stream(self.index)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.index))
        if nbytes:
            self._copy_whole(dest, source, nbytes, side.cuda_stream)
            self._keep(ctx, private, side.cuda_stream)

    def _keep(self, ctx: Any, private: Any, stream: int) -> None:
        """Until the context's quiet, or until a look from time to time finds its stream idle."""
        kept = self._kept.setdefault(ctx, [])
        if len(kept) % _MOST_KEPT == _MOST_KEPT - 1 and self.driver.idle(stream):
            kept.clear()
        kept.append(private)

    def copy_strided(self, dest: int, source: int, dest_step: int, source_step: int, item: int, count: int) -> None:
        self.use_stream()
        bits = dest | source | dest_step | source_step
        if count:
            near = spread(self, dest, dest_step, item, count, bits)
            near.copy_(spread(self, source, source_step, item, count, bits))

    def store(self, dest: int, source: int, nbytes: int) -> None:
        """One element out of private memory, read now: a word of 4 or 8 bytes by one store of a kernel."""
        kind = WORDS.get(nbytes)
        if kind is None:
            self.copy(dest, source, nbytes)
        else:
            self.amo(
                "set", kind, dest, int.from_bytes(ctypes.string_at(source, nbytes), "little", signed=True), fetch=False
            )

    def fetch(self, address: int, nbytes: int) -> int:
        """Where in CPU memory these bytes of any PE can be read, after what is on the current stream."""
        self._refuse_capture("a call that returns what it reads")
        stream, at = self._stream(), self._landing(nbytes)
        self._read(at, address, nbytes, stream)
        return at

    def _read(self, at: int, address: int, nbytes: int, stream: int) -> None:
        """Bring bytes to ``at``, no word of them torn: AMD's copies move bytes, so there a kernel reads."""
        if nbytes in WORDS:
            _native.set_uint64(at, _UNLIKELY)
        if self.moves_words and not (address | nbytes) & 3:
            _hostops().read(address, nbytes, at, stream, self.index)
        else:
            self.driver.copy(at, address, nbytes, stream)
        if nbytes in WORDS:
            self._await_landing(at, stream)
        else:
            self.driver.synchronize(stream)

    # ---- atomics and looks ----

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
        stream = self.use_stream()
        apply, ordered = _hostops().apply, ordered or self._fenced
        if not fetch:
            apply(op, dtype, address, value, cond, 0, stream, self.index, ordered)
            return None
        self._refuse_capture("an atomic that returns what it finds")
        at = self._landing(8)
        _native.set_uint64(at, _UNLIKELY)
        apply(op, dtype, address, value, cond, at, stream, self.index, ordered)
        self._await_landing(at, stream)
        return FETCH[dtype](at)

    def _await_landing(self, at: int, stream: int) -> None:
        """Wait until the GPU has written there: by looking, which is 2 us faster than waiting for the stream."""
        while True:
            try:
                _native.wait_uint32(at, _NOT_EQUAL, _UNLIKELY & 0xFFFFFFFF, _LOOK_SECONDS, job.spins)
            except TimeoutError:
                if not self.driver.idle(stream):
                    continue
            return

    def look(self, address: int, nbytes: int) -> int:
        """Copied to pinned memory by the heap's own stream. Stores of the current stream are seen if it is nearly done."""
        self._refuse_capture("wait or test")
        self._raise_recorded()
        until = time.monotonic() + _IDLE_SECONDS
        current = self._stream()
        while not self.driver.idle(current) and time.monotonic() < until:
            pass
        at = self._landing(nbytes)
        self._read(at, address, nbytes, self._look_stream)
        return at

    def _landing(self, nbytes: int) -> int:
        """The address of pinned memory of this thread's."""
        thread = self._thread
        if thread.room < nbytes:
            thread.room = max(nbytes, 4096)
            thread.landing = torch.empty(thread.room, dtype=torch.uint8, device="cpu", pin_memory=True)
            thread.at = thread.landing.data_ptr()
        return thread.at

    # ---- order ----

    def order(self) -> None:
        """One stream keeps its order by itself, if its atomics are releases from now on; several are waited for."""
        self._raise_recorded()
        self._fenced = True
        if len(self._used) > 1 or self._sides or (self._used and self._stream() not in self._used):
            self.settle()

    def settle(self, ctx: Any = None) -> None:
        """Wait for the current stream, the streams put from, and the context's own, for None every context's."""
        self._refuse_capture("quiet, barrier or allocation")
        if ctx is None:
            self._fenced = False  # before the waits: a fence that comes meanwhile, of another thread, stays
        self.use_stream()
        for stream in list(self._used):
            self.driver.synchronize(stream)
        self._used.clear()
        sides = self._sides.values() if ctx is None else [self._sides[ctx]] if ctx in self._sides else []
        for side in sides:
            self.driver.synchronize(side.cuda_stream)
        self._kept.clear() if ctx is None else self._kept.pop(ctx, None)
        _native.fence()
        self._raise_recorded()

    def own_stream(self) -> int:
        """One of the calling thread's own, for what it waits for: kernels that wait for peers hold up no other thread's."""
        self.enter()
        if self._thread.stream is None:
            self._thread.stream = torch.cuda.Stream(self.index)  # type: ignore[no-untyped-call]
        return int(self._thread.stream.cuda_stream)

    def finish(self, stream: int) -> None:
        """Wait for one stream. Errors: WaitTimeoutError of a kernel that gave up."""
        self.driver.synchronize(stream)
        self._raise_recorded()

    def drain(self) -> None:
        self._refuse_capture("free")
        torch.cuda.synchronize(self.index)
        self._raise_recorded()

    def _refuse_capture(self, what: str) -> None:
        if torch.cuda.is_current_stream_capturing():
            got = f"{what}, which must wait for the GPU, under graph capture"
            refuse(ArgumentError, "capture", "stream", got, "it before or after the capture")

    def _raise_recorded(self) -> None:
        if self._recorded[0]:
            self._give_up()

    def _give_up(self) -> None:
        from pyshmem.runtime.timeouts import describe_record

        words = self._recorded.tolist()
        self._recorded[:] = 0
        raise WaitTimeoutError(describe_record(words))


@cache
def _hostops() -> Any:
    """Imports triton, which programs without atomics on the GPU do not need."""
    from pyshmem.kernels import host_atomics

    return host_atomics


gpu = GpuHeap()
