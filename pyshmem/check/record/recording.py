"""What a PE records: where its accesses lie, and whether the library itself makes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.base.far import SHIFT
from pyshmem.base.job import job
from pyshmem.check.trace import FENCE, IN_KERNEL, QUIET, Trace, now
from pyshmem.host.registration import registered_at
from pyshmem.memory.arguments import describe
from pyshmem.memory.cpu_heap import cpu

# (PE whose heap it is, *span of pyshmem.check.spans); for private memory the negative of PE + 1
Range = tuple[int, ...]


class Watched(NamedTuple):
    """Private memory that a context's operations use. array: it, as nothing else may lie there until quiet."""

    start: int
    end: int
    ctx: int
    array: Any


class _Depth(threading.local):
    inside = 0  # calls of the library that this thread is in: what they do themselves is not recorded
    kernels = 0  # kernels that this thread is in
    threads = 0  # of this process that have called the library or torch

    def __init__(self) -> None:
        type(self).threads += 1


class Recorder:
    """Writes the trace of this PE from init on."""

    def __init__(self) -> None:
        self.depth = _Depth()
        self.trace: Trace | None = None
        self.watched: list[Watched] = []  # private memory that non-blocking operations use
        self.launched = False  # whether kernels have ended since the program read something that was computed
        self._ordered = ""  # a fence or a quiet since the last record: while there is one thread, the next one tells
        self._heaps: list[tuple[int, int]] = []  # (address, PE) of the mapped heaps
        self._pes: dict[int, int] = {}
        self._first = self._last = 0  # where the mapped heaps begin and end
        self._stride = 1  # from one to the next

    def start(self, directory: str) -> None:
        """After init: this process knows its PE and its heap."""
        if self.trace is None:
            self.trace = Trace(directory)
            self.trace.write((now(), "init", 0, job.my_pe, job.n_pes))
        self._heaps = sorted((cpu.base + away, pe) for pe, away in cpu.deltas.items())
        self._pes = dict(self._heaps)
        self._first, self._last = self._heaps[0][0], self._heaps[-1][0] + cpu.size
        self._stride = cpu.stride or self._last - self._first

    @property
    def idle(self) -> bool:
        """Whether nothing is recorded now."""
        return self.trace is None or self.depth.inside > 0 or not job.inits

    @contextmanager
    def within(self) -> Iterator[None]:
        self.depth.inside += 1
        try:
            yield
        finally:
            self.depth.inside -= 1

    def write(self, time: int, kind: str, *rest: Any) -> None:
        trace = self.trace
        if trace is not None:
            if self.depth.kernels:
                kind = IN_KERNEL + kind
            if self._ordered:
                kind, self._ordered = self._ordered + kind, ""
            trace.write((time, kind, trace.site(), *rest))

    def order(self, ctx: int) -> None:
        """A fence has ordered what came before. Another one directly after it changes nothing."""
        if ctx or self.depth.threads > 1:
            self.write(now(), "fence", ctx)
        elif not self._ordered:
            self._ordered = FENCE

    def complete(self, ctx: int) -> None:
        """A quiet has completed what came before."""
        self.quiet(ctx)
        if ctx or self.depth.threads > 1:
            self.write(now(), "quiet", ctx, None)
        else:
            self._ordered = QUIET

    def drained(self) -> None:
        """The program reads what torch has computed: on a GPU it waits for all work of the stream."""
        if self.launched and not self.idle:
            self.launched = False
            self.write(now(), "drained")

    def quiet(self, ctx: int = 0) -> None:
        if self.watched:
            self.watched = [kept for kept in self.watched if kept.ctx != ctx]

    def at(self, address: int, nbytes: int) -> Range:
        """Name a range of memory."""
        if self._first <= address < self._last:
            start = (address - self._first) % self._stride
            pe = self._pes.get(address - start)
            if pe is not None and start < cpu.size:
                return pe, start, start + nbytes
        if address >> SHIFT:  # a place on a far PE
            pe = (address >> SHIFT) - 1
            start = address - (pe + 1 << SHIFT)
            return pe, start, start + nbytes
        registered = registered_at(address)
        if registered is not None:
            pe, place = registered
            return pe, cpu.stride + place, cpu.stride + place + nbytes
        return -1 - job.my_pe, address, address + nbytes

    def maps(self, address: int) -> bool:
        """Whether this is an address of a near PE's heap."""
        return self._first <= address < self._last

    def place(self, array: Any) -> int:
        """Return where a symmetric array begins in every heap."""
        return self._placed(array.data_ptr() if type(array) is torch.Tensor else extent(array, 0)[0])

    def _placed(self, address: int) -> int:
        if self._first <= address < self._last:
            return (address - self._first) % self._stride
        return self.at(address, 0)[1]

    def strided(self, address: int, nbytes: int, step: int, count: int) -> Range:
        """Name ``count`` ranges, each ``step`` bytes behind the one before."""
        if count == 1 or step == nbytes:
            return self.at(address, nbytes * count)
        return *self.at(address, nbytes), step, count

    def each(self, places: Any, size: int) -> list[Range]:
        """Name the elements of ``size`` bytes at these addresses, as few ranges; what is not recorded is left out."""
        places = np.unique(places)
        cuts = np.flatnonzero(np.diff(places) != size) + 1
        starts, ends = places[np.concatenate(([0], cuts))], places[np.concatenate((cuts - 1, [-1]))] + size
        steps = np.diff(starts)
        if starts.size > 2 and np.ptp(steps) == 0 and np.ptp(ends - starts) == 0:
            first, last = int(starts[0]), int(starts[-1])
            if self.at(first, 1)[0] == self.at(last, 1)[0]:  # not one element on each PE
                return [self.strided(first, int(ends[0] - starts[0]), int(steps[0]), starts.size)]
        rows = zip(starts.tolist(), ends.tolist(), strict=True)
        return [self.at(start, end - start) for start, end in rows if self.is_seen(start)]

    def symmetric(self, array: Any, nelems: int | None = None) -> Range:
        """The span of elements of a symmetric array, alike on all PEs."""
        address, nbytes = extent(array, nelems)
        start = self._placed(address)
        return start, start + nbytes

    def array(self, array: Any, nelems: int | None = None) -> Range:
        """The range of the first elements of a contiguous array of any library."""
        return self.at(*extent(array, nelems))

    def is_seen(self, address: int) -> bool:
        """Whether accesses to this address are recorded."""
        if self._first <= address < self._last:
            return True
        if registered_at(address) is not None:
            return True
        return any(kept.start <= address < kept.end for kept in self.watched)

    def keep(self, where: Range, array: Any = None, ctx: int = 0) -> Range:
        """Watch private memory until the context is quiet."""
        if where[0] < 0:
            self.watched.append(Watched(where[1], where[2], ctx, array))
        return where

    def own(self, address: int, nbytes: int) -> list[Range]:
        """The own side of a copy, to record: of private memory only while something else may be under way there."""
        if self._first <= address < self._last or self.watched:
            return [self.at(address, nbytes)]
        return [self.at(address, nbytes)] if registered_at(address) is not None else []


def extent(array: Any, nelems: int | None = None) -> tuple[int, int]:
    """The address and the bytes of the first elements of a contiguous array that a call has accepted."""
    if type(array) is torch.Tensor:
        return array.data_ptr(), array.nbytes if nelems is None else nelems * array.itemsize
    operand = describe("check", "array", array)
    return operand.address, (operand.nelems if nelems is None else nelems) * operand.itemsize


recorder = Recorder()


def hidden(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of the library; what it does itself is not recorded."""
    depth = recorder.depth
    depth.inside += 1
    try:
        return call(*arguments, **options)
    finally:
        depth.inside -= 1


def apart(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The same for a function that calls torch's operators: each would take 9 us to find that nothing is recorded."""
    with torch._C._DisableTorchDispatch():
        return hidden(call, *arguments, **options)
