"""The trace of one PE: what its program did, when and on which line, in a file that outlives the process.

A record is its size and a tuple of marshal: time in nanoseconds of the machine's one monotonic clock, kind, number of the
source line, and what the kind says (pyshmem.check.analysis reads it). The file is mapped: a PE that is killed loses nothing.
"""

from __future__ import annotations

import marshal
import mmap
import os
import sys
import time
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, heappushpop
from pathlib import Path
from typing import Any

now = time.monotonic_ns
dumps = marshal.dumps
_VERSION = 2  # of marshal: later ones look for objects that a record has twice, which takes longer
_CHUNK = 1 << 20
_LATE = 1 << 14  # records of other threads that may be written while a call is under way
Record = tuple[Any, ...]
IN_KERNEL = "!"  # before the kind of a record of a kernel's program: other threads of the PE may be at work meanwhile
_LIBRARY = str(Path(__file__).parent.parent) + os.sep
_OPERATORS = (f"{_LIBRARY}ops{os.sep}", f"{_LIBRARY}irregular{os.sep}")  # they stand on the API, as programs do
_FOREIGN = (f"{os.sep}triton{os.sep}", f"{os.sep}torch{os.sep}")


def _is_hidden(file: str) -> bool:
    """Whether a file is none of the user's program nor of the operators."""
    if file.startswith(_LIBRARY):
        return not file.startswith(_OPERATORS)
    return file[:1] == "<" or any(part in file for part in _FOREIGN)


class Trace:
    """The file of this process. Any thread writes records, each by one call of the map, which no other thread interrupts."""

    def __init__(self, directory: str) -> None:
        self.path = Path(directory) / f"trace-{os.getpid()}"
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._sites: dict[tuple[int, int], int] = {}
        self._codes: list[Any] = []
        self._ids: dict[tuple[str, int], int] = {}
        os.ftruncate(file, _CHUNK)
        self._map = mmap.mmap(file, _CHUNK)
        os.close(file)

    @property
    def end(self) -> int:
        """Where the last record ends."""
        return self._map.tell()

    def write(self, record: Record) -> None:
        data = dumps(record, _VERSION)
        data = len(data).to_bytes(4, "little") + data
        while True:
            try:
                self._map.write(data)
                return
            except ValueError:  # there is no room; behind the last record is a size of 0
                self._map.resize(len(self._map) + max(_CHUNK, len(data)))

    def site(self) -> int:
        """The number of the line of the user's program that is being executed; 0 if there is none."""
        frame = sys._getframe(3)  # this call, Recorder.write and the function that calls it are no program's
        while frame is not None:
            found = self._sites.get((id(frame.f_code), frame.f_lasti))
            if found is None:
                found = self._new_site(frame)
            if found >= 0:
                return found
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    def _new_site(self, frame: Any) -> int:
        code = frame.f_code
        name = code.co_filename
        found = -1
        if not _is_hidden(name):
            key = (name, frame.f_lineno)
            if key not in self._ids:
                self._ids[key] = len(self._ids) + 1
                self.write((now(), "site", self._ids[key], os.path.abspath(name), frame.f_lineno, code.co_name))
            found = self._ids[key]
        self._codes.append(code)  # which keeps its id
        self._sites[(id(code), frame.f_lasti)] = found
        return found


class Reading:
    """The records of a file, up to the first that is not whole. Each loop over it reads the file anew."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Record]:
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place, load = 0, marshal.loads
            while size := int.from_bytes(data[place : place + 4], "little"):
                place += 4 + size
                try:
                    yield load(data[place - size : place])
                except (EOFError, ValueError, TypeError):
                    return


def in_order(records: Iterable[Record]) -> Iterator[Record]:
    """Records by their times. A call is written when it has returned, with the time at which it began."""
    waiting: list[tuple[int, int, Record]] = []
    for number, record in enumerate(records):
        waiting_for = (record[0], number, record)
        if number < _LATE:
            heappush(waiting, waiting_for)
        else:
            yield heappushpop(waiting, waiting_for)[2]
    while waiting:
        yield heappop(waiting)[2]
