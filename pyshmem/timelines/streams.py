"""Copies on the streams of a GPU: when a copy engine began and ended each, by events of the stream before and behind it.

While a timeline is recorded the driver's copies go through here, those of puts, gets, collectives and operators alike. Looks
at words, which waits repeat, are left out, and copies of a graph, whose events have no time.

An event's time counts from that of another event. So now and then an event is recorded on a stream without work, where the
host can see when it passes.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import Any, NamedTuple

import torch

from pyshmem.native import _native
from pyshmem.timelines.events import COPIES, EVENT, NONE, ON_GPU
from pyshmem.timelines.requests import TO_COPIES

_ROUNDS = 8  # of which the fastest counts
_AGAIN = 10**9  # nanoseconds from one comparison to the next: a time of fewer has the digits that it needs
_PENDING = 256  # copies after which the first ones are looked at


class Timing:
    """The events of torch."""

    def __init__(self, index: int) -> None:
        self._index = index
        self.own: Any = torch.cuda.Stream(index)  # type: ignore[no-untyped-call]

    now = staticmethod(monotonic_ns)

    def event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def captures(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def finish(self) -> None:
        torch.cuda.synchronize(self._index)


class _Base(NamedTuple):
    """An event, when it passed by the host's clock, and the most that this is wrong, in nanoseconds."""

    event: Any
    time: int
    error: int


class _Copy(NamedTuple):
    number: int
    base: _Base
    begin: Any
    end: Any
    stream: int
    nbytes: int
    pe: int


class Copies:
    """The recording of this PE's copies, from open to drain. most: copies; further ones are counted as lost."""

    def __init__(self, heap: Any, most: int, timing: Any = None) -> None:
        self._heap, self._most, self._timing = heap, most, timing or Timing(heap.index)
        self._copy = heap.driver.copy
        self._bases: list[_Base] = []
        self._pending: deque[_Copy] = deque()
        self._free: list[Any] = []  # events
        self._done: list[tuple[_Copy, int, int]] = []  # with their begins and ends
        self._streams: dict[int, int] = {}  # the number of each, in the order of their first copies
        self._taken = 0

    def open(self) -> None:
        near = self._heap.near
        self._routes = near.put, near.get
        near.put = near.get = near._copy  # which asks the driver
        self._heap.driver.copy = self.copy

    def drain(self, name: int) -> tuple[bytes, int, int]:
        """Record no more. Returns: event_t of all, how many were lost, the error of their times. name: its number."""
        near = self._heap.near
        near.put, near.get = self._routes
        del self._heap.driver.copy
        self._timing.finish()
        while self._pending:
            self._take(self._pending.popleft())
        lost, error = self._taken - len(self._done), max((each.error for each in self._bases), default=0)
        return b"".join(_packed(name, *each) for each in self._done), lost, error

    def copy(self, dest: int, source: int, nbytes: int, stream: int) -> None:
        """The driver's copy, recorded."""
        if stream == self._heap.near._look_stream or self._timing.captures():
            self._copy(dest, source, nbytes, stream)
            return
        self._taken += 1
        if self._taken > self._most:
            self._copy(dest, source, nbytes, stream)
            return
        base, begin, end, on = self._base(), self._event(), self._event(), self._heap.near._stream_of(stream)
        begin.record(on)
        self._copy(dest, source, nbytes, stream)
        end.record(on)
        number = self._streams.setdefault(stream, len(self._streams))
        pe = max(self._owner(dest), self._owner(source))  # -1: neither is symmetric memory of another PE
        self._pending.append(_Copy(self._taken, base, begin, end, number, nbytes, pe))
        _native.note_sent(TO_COPIES, self._taken)
        if len(self._pending) > _PENDING and self._pending[0].end.query():
            self._take(self._pending.popleft())

    def _owner(self, address: int) -> int:
        """The other PE in whose heap an address is; -1 for none."""
        heap = self._heap
        for pe, delta in heap.deltas.items():
            if delta and 0 <= address - delta - heap.system < heap.system_bytes + heap.size:
                return int(pe)
        return -1

    def _event(self) -> Any:
        return self._free.pop() if self._free else self._timing.event()

    def _base(self) -> _Base:
        now = self._timing.now()
        if not self._bases or now - self._bases[-1].time > _AGAIN:
            self._bases.append(min((self._compared() for _ in range(_ROUNDS)), key=lambda each: each.error))
        return self._bases[-1]

    def _compared(self) -> _Base:
        event, timing = self._timing.event(), self._timing
        before = timing.now()
        event.record(timing.own)
        event.synchronize()
        after = timing.now()
        return _Base(event, (before + after) // 2, (after - before) // 2 + 1)

    def _take(self, copy: _Copy) -> None:
        begin, end = (
            copy.base.time + round(copy.base.event.elapsed_time(each) * 1e6) for each in (copy.begin, copy.end)
        )
        self._free += copy.begin, copy.end
        self._done.append((copy._replace(begin=None, end=None), begin, end))


def _packed(name: int, copy: _Copy, begin: int, end: int) -> bytes:
    return EVENT.pack(begin, end, copy.nbytes, 0, copy.number, 0, copy.pe, name, copy.stream, NONE, ON_GPU, COPIES)
