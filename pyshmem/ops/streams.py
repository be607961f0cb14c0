"""Side streams and events, for schedules with several streams. CPU memory has none: there everything happens in order."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pyshmem.memory.heap import default

# HIP has as many hardware queues of a priority, unless it is told otherwise, and streams share them in order
MOST_ON_HIP = 4
_ring: list[Any] = []


def _stream(priority: int) -> Any:
    """Return a stream for a side. On HIP all sides take turns on a few, and the host's own streams alone have priority."""
    heap = default()
    if not heap.streams:
        return None
    if heap.driver.vendor == "cuda":
        return torch.cuda.Stream(priority=priority)  # type: ignore[no-untyped-call]
    taken = _ring.pop(0) if len(_ring) == MOST_ON_HIP else torch.cuda.Stream()  # type: ignore[no-untyped-call]
    _ring.append(taken)
    return taken


class _Within:
    """A context in which ``stream`` is the current one instead of ``before``, which is of the same device.

    torch.cuda.stream asks for the current stream and compares devices, which takes longer than all else in a short call.
    """

    __slots__ = ("_before", "_stream")

    def __init__(self, stream: Any, before: Any) -> None:
        self._stream, self._before = stream, before

    def __enter__(self) -> None:
        torch.cuda.set_stream(self._stream)

    def __exit__(self, *raised: object) -> None:
        torch.cuda.set_stream(self._before)


class Side:
    """A stream beside the current one. Others may have the same stream: all PEs enqueue on their sides in the same order."""

    def __init__(self, priority: int = -1) -> None:
        """priority: as of torch.cuda.Stream. The usual one is above that of products; 0 is for products beside them."""
        self._used = False
        self._stream: Any = _stream(priority)
        self._present: Any = None  # an event, which is recorded anew for each wait

    def after(self, *others: Any) -> AbstractContextManager[Any]:
        """Return a context in which work is enqueued on the side stream, after the present work of the current stream.

        others: streams whose present work comes before it, too.
        """
        if self._stream is None:
            return nullcontext()
        self._used = True
        current = torch.cuda.current_stream()
        for stream in {current, *others} if others else (current,):
            self._let_wait(self._stream, stream)
        return _Within(self._stream, current)

    def beside(self) -> AbstractContextManager[Any]:
        """Return a context in which work is enqueued after the present work of the side stream alone, behind an after()."""
        return nullcontext() if self._stream is None else _Within(self._stream, torch.cuda.current_stream())

    def keep(self, array: torch.Tensor) -> None:
        """Let the side stream's present work use the array's memory, though its owner frees it before that is done."""
        if self._stream is not None:
            array.record_stream(self._stream)

    def mark(self) -> Any:
        """Return an event after the present work of the side stream."""
        return None if self._stream is None else self._stream.record_event()

    def join(self) -> None:
        """Let the current stream wait for the work since the last join."""
        if self._used:  # a graph that is being captured refuses streams that have no part in it
            self._let_wait(torch.cuda.current_stream(), self._stream)
            self._used = False

    def _let_wait(self, stream: Any, other: Any) -> None:
        """Let a stream wait for the present work of another one."""
        if self._present is None:
            self._present = torch.cuda.Event()
        self._present.record(other)
        stream.wait_event(self._present)


def await_mark(mark: Any) -> None:
    """Let the current stream wait for an event."""
    if mark is not None:
        torch.cuda.current_stream().wait_event(mark)
