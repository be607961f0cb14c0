"""Side streams and events of schedules with several streams. CPU memory has no streams: there everything happens in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from pyshmem.runtime.heap import default


class Side:
    """A stream beside the current one. ``with side.after():`` enqueues there, after the present work of the current stream."""

    def __init__(self) -> None:
        self._stream: Any = torch.cuda.Stream(priority=-1) if default().streams else None  # type: ignore[no-untyped-call]

    @contextmanager
    def after(self) -> Iterator[None]:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            yield

    @contextmanager
    def again(self) -> Iterator[None]:
        """Enqueue on the side stream without waiting for the current one."""
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            yield

    def mark(self) -> Any:
        """Return an event after the present work of the side stream."""
        return None if self._stream is None else self._stream.record_event()

    def join(self) -> None:
        """Let the current stream wait for the side stream."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


def await_mark(mark: Any) -> None:
    """Let the current stream wait for an event."""
    if mark is not None:
        torch.cuda.current_stream().wait_event(mark)
