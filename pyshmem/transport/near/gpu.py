"""The route to the GPU memory of near PEs: copies in stream order by the copy engine, atomics by kernels of one thread.

Puts, stores and atomics are enqueued on torch's current stream. Non-blocking copies are enqueued on a stream of their
context. Waits read the memory on a separate stream, so they never queue behind the program's kernels.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch

from pyshmem.base.comparisons import NE
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.memory.arguments import BOUNDS
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.gpu.heap import gpu, raw_stream
from pyshmem.memory.words import LOAD, TEST, Words, any_holds
from pyshmem.native import _native
from pyshmem.transport.near.bridge import WORDS, Bridge, spread
from pyshmem.transport.route import Route, atomics_of

if TYPE_CHECKING:
    from pyshmem.memory.gpu.heap import GpuHeap

_UNLIKELY = 0x5BD1E995A7F3C2D9  # the value of a landing buffer before the GPU writes it
_LOOK_SECONDS = 0.01  # after this time, an unchanged landing buffer is accepted if the stream is idle
_MOST_KEPT = 64  # arrays that non-blocking calls keep alive before the stream is checked
_IDLE_SECONDS = 1e-3  # the time that a look waits for the current stream


class _Thread(threading.local):
    """The state of a thread."""

    stream: torch.cuda.Stream | None = None  # for kernels that the thread waits for
    landing: torch.Tensor | None = None  # its landing buffer: pinned memory that the GPU writes
    at = room = 0  # the address and the bytes of the landing buffer


class GpuNear(Route):
    """The route to the GPU memory of near PEs."""

    def __init__(self, heap: GpuHeap) -> None:
        self.heap = heap
        self.moves_words = False
        self.atomics = atomics_of(self._fetch_by, self._update_by)

    def open(self) -> None:
        """Create the streams and set the functions of the route."""
        driver = self.heap.driver
        self.bridges = {"cpu": Bridge(self, cpu), "cuda": Bridge(self, self.heap)}
        self.moves_words = driver.vendor == "hip"
        self._begin()
        self.put = self.get = self._copy
        if driver.vendor == "cuda":
            self.put = self.get = _native.copier(
                driver.copy_function, raw_stream, self.heap.index, self._used, self._copy
            )
        self._looking = self._hosts_stream()
        self._look_stream = self._looking.cuda_stream

    def _hosts_stream(self) -> torch.cuda.Stream:
        """Return a stream for work that the host waits for.

        On HIP, streams of one priority share hardware queues in order, so it has another one than the program's kernels, of
        which one may wait for this host.
        """
        return torch.cuda.Stream(self.heap.index, priority=-1 if self.moves_words else 0)  # type: ignore[no-untyped-call]

    def _begin(self) -> None:
        """Set the state in which no operation is pending."""
        self._thread = _Thread()
        self._used: set[int] = set()  # streams with puts that no quiet has completed
        self._fenced = False  # whether a fence came after the last quiet
        self._sides: dict[Any, torch.cuda.Stream] = {}  # the stream of non-blocking calls, by context
        self._kept: dict[Any, list[Any]] = {}  # the arrays of those calls, by context

    def close(self) -> None:
        """Complete all operations and release the streams."""
        self.drain()
        self._sides.clear()
        self._kept.clear()
        del self._looking, self._thread

    # ---- copies ----

    def use_stream(self) -> int:
        """Return the current stream, and let quiet wait for it."""
        heap = self.heap
        if not heap.thread.ready:
            heap.enter()
        stream: int = raw_stream(heap.index)  # type: ignore[misc]
        if stream not in self._used:
            self._used.add(stream)
        return stream

    def _copy(self, dest: int, source: int, nbytes: int) -> None:
        self._copy_whole(dest, source, nbytes, self.use_stream())

    def _copy_whole(self, dest: int, source: int, nbytes: int, stream: int) -> None:
        """Copy without tearing words. AMD's copies may tear words, so there a kernel copies a single word."""
        if self.moves_words and nbytes in WORDS and not (dest | source) & (nbytes - 1):
            _host_atomics().read(source, nbytes, dest, stream, self.heap.index)
        else:
            self.heap.driver.copy(dest, source, nbytes, stream)

    def put_nbi(self, place: int, source: int, nbytes: int, ctx: Any, private: Any) -> None:
        """Copy on the stream of the context, after the present work on the current stream, which may compute the source.

        The array is kept, because torch would reuse the memory of a released array on the current stream.
        """
        side = self.side(ctx)
        if nbytes:
            self._copy_whole(place, source, nbytes, side.cuda_stream)
            self._keep(ctx, private, side.cuda_stream)

    def side(self, ctx: Any) -> torch.cuda.Stream:
        """Return the stream of a context, after the present work on the current stream."""
        side = self._sides.get(ctx)
        if side is None:
            side = self._sides[ctx] = torch.cuda.Stream(self.heap.index)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.heap.index))
        return side

    def get_nbi(self, dest: int, place: int, nbytes: int, ctx: Any, private: Any) -> None:
        self.put_nbi(dest, place, nbytes, ctx, private)  # both are copies

    def _keep(self, ctx: Any, private: Any, stream: int) -> None:
        """Keep the array until quiet of the context, or until an occasional check finds the stream idle."""
        kept = self._kept.setdefault(ctx, [])
        if len(kept) % _MOST_KEPT == _MOST_KEPT - 1 and self.heap.driver.idle(stream):
            kept.clear()
        kept.append(private)

    def put_strided(self, place: int, source: int, place_step: int, source_step: int, item: int, count: int) -> None:
        self.use_stream()
        bits = place | source | place_step | source_step
        if count:
            there = spread(self.heap, place, place_step, item, count, bits)
            there.copy_(spread(self.heap, source, source_step, item, count, bits))

    get_strided = put_strided

    def store(self, place: int, source: int, nbytes: int) -> None:
        """Put an element of private CPU memory, which is read now. A kernel stores a word of 4 or 8 bytes by one store."""
        kind = WORDS.get(nbytes)
        if kind is None:
            self.put(place, source, nbytes)
        else:
            bits = int.from_bytes(ctypes.string_at(source, nbytes), "little", signed=True)
            self.atomics["set"][kind](place, bits)

    def fetch(self, place: int, nbytes: int) -> int:
        """Read after the work on the current stream."""
        self.refuse_capture("a call that returns what it reads")
        stream, at = self._after(self.heap.stream()), self._landing(nbytes)
        self._read(at, place, nbytes, stream)
        return at

    def _after(self, stream: int) -> int:
        """Return a stream for work after that of ``stream``: on HIP one of the host's, if that has no work."""
        return self._look_stream if self.moves_words and self.heap.driver.idle(stream) else stream

    def _read(self, at: int, address: int, nbytes: int, stream: int) -> None:
        """Copy bytes to ``at`` without tearing words. AMD's copies may tear words, so there a kernel reads them."""
        if nbytes in WORDS:
            _native.set_uint64(at, _UNLIKELY)
        if self.moves_words and not (address | nbytes) & 3:
            _host_atomics().read(address, nbytes, at, stream, self.heap.index)
        else:
            self.heap.driver.copy(at, address, nbytes, stream)
        if nbytes in WORDS:
            self._await_landing(at, stream)
        else:
            self.heap.driver.synchronize(stream)

    # ---- atomics, looks and waits ----

    def _fetch_by(self, op: str, dtype: torch.dtype) -> Callable[..., Any]:
        return partial(self._compare_swap, dtype) if op == "compare_swap" else partial(self._fetching, op, dtype)

    def _update_by(self, op: str, dtype: torch.dtype) -> Callable[..., None]:
        low, high = BOUNDS.get(dtype, (None, None))
        heap = self.heap

        def update(place: int, value: Any, ordered: bool = False) -> None:
            if low is not None and not low <= value <= high:
                raise OverflowError  # a kernel would wrap the value
            stream = self.use_stream()
            ordered = ordered or self._fenced
            if ordered:
                self.publish(stream)
            _host_atomics().apply(op, dtype, place, value, 0, 0, stream, heap.index, ordered)

        return update

    def _compare_swap(self, dtype: torch.dtype, place: int, cond: Any, value: Any) -> Any:
        _require_held(dtype, cond)
        return self._fetching("compare_swap", dtype, place, value, cond)

    def _fetching(self, op: str, dtype: torch.dtype, place: int, value: Any = 0, cond: Any = 0) -> Any:
        _require_held(dtype, value)
        stream = self._after(self.use_stream())
        self.refuse_capture("an atomic that returns what it finds")
        at = self._landing(8)
        _native.set_uint64(at, _UNLIKELY)
        if self._fenced:
            self.publish(stream)
        _host_atomics().apply(op, dtype, place, value, cond, at, stream, self.heap.index, self._fenced)
        self._await_landing(at, stream)
        return LOAD[dtype](at)

    def signal(self, update: str, place: int, value: int) -> None:
        """Update in stream order, and as a release of earlier stores."""
        self.atomics[update][torch.uint64](place, value, True)

    def _await_landing(self, at: int, stream: int) -> None:
        """Wait until the GPU has written the landing buffer. Polling is 2 us faster than waiting for the stream."""
        while True:
            try:
                _native.wait_uint32(at, NE, _UNLIKELY & 0xFFFFFFFF, _LOOK_SECONDS, job.spins)
            except TimeoutError:
                if not self.heap.driver.idle(stream):
                    continue
            return

    def look(self, address: int, nbytes: int) -> int:
        """Copy the bytes to pinned memory on a separate stream, when the current stream is idle or after _IDLE_SECONDS."""
        self.refuse_capture("wait or test")
        self.heap.raise_recorded()
        until = time.monotonic() + _IDLE_SECONDS
        current = self.heap.stream()
        while not self.heap.driver.idle(current) and time.monotonic() < until:
            pass
        at = self._landing(nbytes)
        self._read(at, address, nbytes, self._look_stream)
        return at

    def wait_word(self, address: int, dtype: Any, code: int, value: int) -> int:
        _require_held(dtype, value)
        holds = TEST[dtype]
        return self._watch(
            address, dtype.itemsize, lambda seen: LOAD[dtype](seen) if holds(seen, code, value) else None
        )

    def wait_any(self, words: Words) -> int:
        return self._watch(words.address, words.nelems * words.dtype.itemsize, lambda seen: any_holds(words, seen))

    def _watch(self, address: int, nbytes: int, satisfied: Callable[[int], int | None]) -> int:
        """Read the bytes until ``satisfied(address of a copy)`` returns an int, and return that. Errors: TimeoutError."""
        until = time.monotonic() + (job.timeout or math.inf)
        found, begins = satisfied(self.look(address, nbytes)), True
        try:
            while found is None:
                _native.wait_goes_on(begins)
                begins = False
                if time.monotonic() > until:
                    raise TimeoutError
                found = satisfied(self.look(address, nbytes))
            return int(found)
        finally:
            if not begins:
                _native.wait_ends()

    def _landing(self, nbytes: int) -> int:
        """Return the address of this thread's landing buffer, which has ``nbytes`` or more."""
        thread = self._thread
        if thread.room < nbytes:
            thread.room = max(nbytes, 4096)
            thread.landing = torch.empty(thread.room, dtype=torch.uint8, device="cpu", pin_memory=True)
            thread.at = thread.landing.data_ptr()
        return thread.at

    # ---- order ----

    def publish(self, stream: int) -> None:
        """Let the other GPUs see the stream's earlier work before its later work, a kernel that sets a flag.

        HIP ends a dispatch with a release for this GPU alone, and a kernel's own release covers the L2 of its chiplet.
        Before a stream writes a word, HIP releases all to the system; it refuses that while the stream captures a graph.
        """
        if self.moves_words and not torch.cuda.is_current_stream_capturing():
            self.heap.driver.write_value(stream, self.heap.released, 0)

    def order(self) -> None:
        """Order operations: a single stream keeps its order if later atomics are releases; several streams are completed.

        Kernels that follow may set flags for what has come before.
        """
        _native.fence()
        self.heap.raise_recorded()
        self._fenced = True
        if len(self._used) > 1 or self._sides or (self._used and self.heap.stream() not in self._used):
            self.settle()
        elif self.moves_words:
            self.publish(self.heap.stream())

    def settle(self, ctx: Any = None) -> None:
        """Wait for the current stream, all streams with puts, and the stream of ``ctx``, or of all contexts if None."""
        self.refuse_capture("quiet, barrier or allocation")
        if ctx is None:
            self._fenced = False  # before the waits, so that a concurrent fence of another thread stays in effect
        self.use_stream()
        for stream in list(self._used):
            self.heap.driver.synchronize(stream)
        self._used.clear()
        sides = self._sides.values() if ctx is None else [self._sides[ctx]] if ctx in self._sides else []
        for side in sides:
            self.heap.driver.synchronize(side.cuda_stream)
        self._kept.clear() if ctx is None else self._kept.pop(ctx, None)
        _native.fence()
        self.heap.raise_recorded()

    def join(self, ctx: Any = None) -> None:
        """Let the current stream wait for the other streams that settle would wait for; the host does not wait.

        While the current stream captures a graph, only those that belong to the capture are meant.
        """
        index, own = self.heap.index, self.use_stream()
        current, captures = torch.cuda.current_stream(index), torch.cuda.is_current_stream_capturing()
        others = [self._stream_of(raw) for raw in self._used if raw != own]
        others += self._sides.values() if ctx is None else [self._sides[ctx]] if ctx in self._sides else []
        for each in others:
            with torch.cuda.stream(each):
                joins = torch.cuda.is_current_stream_capturing() == captures
            if joins:
                current.wait_stream(each)

    def _stream_of(self, raw: int) -> torch.cuda.Stream:
        index = self.heap.index
        return torch.cuda.ExternalStream(raw, index) if raw else torch.cuda.default_stream(index)  # type: ignore[no-untyped-call]

    def own_stream(self) -> int:
        """Return a stream of the calling thread, for kernels that it waits for: they do not delay those of other threads."""
        self.heap.enter()
        if self._thread.stream is None:
            self._thread.stream = self._hosts_stream()
        return int(self._thread.stream.cuda_stream)

    def finish(self, stream: int) -> None:
        """Wait for one stream. Errors: WaitTimeoutError if a wait in a kernel timed out."""
        self.heap.driver.synchronize(stream)
        self.heap.raise_recorded()

    def drain(self) -> None:
        self.refuse_capture("free")
        torch.cuda.synchronize(self.heap.index)
        self.heap.raise_recorded()

    def refuse_capture(self, what: str) -> None:
        """Errors: ArgumentError if the current stream captures a graph."""
        if torch.cuda.is_current_stream_capturing():
            wants = "one that captures no graph: the call waits for the GPU"
            refuse(ArgumentError, what, "stream", "a current stream that captures a graph", wants)


def _require_held(dtype: torch.dtype, value: Any) -> None:
    """Errors: OverflowError if an integer type cannot hold the int; a kernel would wrap it."""
    bounds = BOUNDS.get(dtype)
    if bounds and not bounds[0] <= value <= bounds[1]:
        raise OverflowError


@cache
def _host_atomics() -> Any:
    """Return the module of the kernels. It imports triton, which programs without atomics on the GPU do not need."""
    from pyshmem.kernels import host_atomics

    return host_atomics


gpu.near = GpuNear(gpu)
