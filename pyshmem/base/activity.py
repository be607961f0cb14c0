"""The page in which this PE counts what it does, for `pyshmem top`: calls, bytes, waits, requests, and the heap's use.

Its memory is a memfd of this process, which other processes of the user find in /proc, and which ends with it. The counts
are those of base/counts.h; a description follows them. Imports no torch, because `pyshmem top` reads pages too.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from pyshmem.base import layout
from pyshmem.native import _native

NAME = "pyshmem-activity"  # of the memfd
PAGE = mmap.PAGESIZE
_COUNTS = layout.format_of("activity_t", "where")
_WATCHED, _ENDED, _USED, _WHERE = (layout.place("activity_t", name) for name in ("watched", "ended", "used", "where"))
_WHERE_BYTES = layout.place("activity_t") - _WHERE
_TEXT = 1024  # where the description begins, as JSON
_NUMBERS = "job", "pe", "n_pes", "pid"  # of it; and the text host


class Counts(NamedTuple):
    """What a page says. Pairs: of near and far PEs; of the heap in CPU memory and that in GPU memory. Times: nanoseconds."""

    calls: tuple[int, int]
    bytes: tuple[int, int]
    meetings: int
    waits: int
    waited: int
    since: int  # when the present wait began, of CLOCK_MONOTONIC; 0: none is known
    used: tuple[int, int]
    size: tuple[int, int]
    ended: bool
    served: int
    served_bytes: int
    where: str


def counts(page: mmap.mmap) -> Counts:
    row: Any = _COUNTS.unpack_from(page)
    return Counts(
        calls=row[0:2], bytes=row[2:4], meetings=row[4], waits=row[5], waited=row[6], since=row[7], used=row[8:10],
        size=row[10:12], ended=bool(row[13]), served=row[14], served_bytes=row[15], where=_where(page),
    )  # fmt: skip


def _where(page: mmap.mmap) -> str:
    text = page[_WHERE : _WHERE + _WHERE_BYTES].partition(b"\0")[0].decode(errors="replace")
    return "".join(each if each.isprintable() else "?" for each in text)  # a terminal would obey what is not


def description(page: mmap.mmap) -> dict[str, Any]:
    """What the PE has said of itself. Errors: ValueError before it has, and for what no PE says of itself."""
    try:
        found: dict[str, Any] = json.loads(page[_TEXT:].rstrip(b"\0"))
        right = isinstance(found["host"], str) and all(type(found[name]) is int for name in _NUMBERS)
    except (KeyError, TypeError, RecursionError):
        right = False
    if not right:
        raise ValueError("a page that no PE has written")
    return found


def watch(page: mmap.mmap, watched: bool) -> None:
    """Let the PE take the time of its waits, or not. Each who watches says so again, as another may have ended to."""
    struct.pack_into("<Q", page, _WATCHED, watched)


class Page:
    """The page of this process, named ``own``. It stays for later jobs of the process."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._namer: Callable[[], str] = str
        self.address = 0

    def open(self, told: dict[str, Any], namer: Callable[[], str]) -> None:
        """Count from now on. told: the description.  namer: returns which call waits, and where. Errors: OSError."""
        if self._memory is None:
            fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
            try:
                os.ftruncate(fd, PAGE)
                self._memory = mmap.mmap(fd, PAGE)  # which keeps a descriptor of its own: by it others find the page
            finally:
                os.close(fd)
        self._namer = namer
        self._memory[:] = bytes(PAGE)
        text = json.dumps(told).encode()
        self._memory[_TEXT : _TEXT + len(text)] = text
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        _native.count_in(self.address, self._name)

    def _name(self) -> None:
        assert self._memory is not None
        text = self._namer().encode()[: _WHERE_BYTES - 1] + b"\0"
        self._memory[_WHERE : _WHERE + len(text)] = text

    def watch(self) -> None:
        """Let this process note in which call it waits."""
        if self._memory is not None:
            watch(self._memory, True)

    def where(self) -> str:
        """Return the call in which this process waits; "" if none is known."""
        return "" if self._memory is None else _where(self._memory)

    def heap(self, index: int, used: int, size: int) -> None:
        """Note how many bytes of a heap are in use, and its size. index: 0 in CPU memory, 1 in GPU memory."""
        if self._memory is not None:
            struct.pack_into("<Q8xQ", self._memory, _USED + 8 * index, used, size)

    def close(self) -> None:
        """Count no more: the job has ended."""
        if self._memory is not None:
            _native.count_in(0, None)
            struct.pack_into("<Q", self._memory, _ENDED, 1)


own = Page()
