"""Bytes that every PE sends to all its peers at once by the copy engine, alone or beside other work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import pyshmem as shmem


class Copies:
    """``with copies.beside():`` starts them behind the current stream, which waits for them at the end of the block."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor, streams: list[Any]) -> None:
        """source: the bytes to each peer, the number of this PE in all of them.  target: a row from each peer, zeros.

        Both are symmetric. streams: one for each peer; None where there are none.
        """
        self._source, self._target, self._streams = source, target, streams
        self._me, self._n = shmem.my_pe(), shmem.n_pes()

    @classmethod
    def value(cls, pe: int) -> int:
        """What each byte is that ``pe`` sends."""
        return pe + 1

    @contextmanager
    def beside(self) -> Iterator[None]:
        for i, stream in enumerate(self._streams):
            pe = (self._me + i + 1) % self._n
            if stream is None:
                shmem.put(self._target[i], self._source, pe)
                continue
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                shmem.put(self._target[i], self._source, pe)
        yield
        for stream in filter(None, self._streams):
            torch.cuda.current_stream().wait_stream(stream)

    def forget(self) -> None:
        """Take back what has come, before a check."""
        self._target.zero_()

    def missing(self) -> str:
        """Return what has not come, "" for nothing."""
        senders = [(self._me - i - 1) % self._n for i in range(self._n - 1)]
        wrong = [pe for row, pe in zip(self._target, senders, strict=True) if (row != self.value(pe)).any()]
        return f"PE {self._me} lacks bytes of the PEs {wrong}; " if wrong else ""
