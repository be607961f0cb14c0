"""The trace of one PE: what its program did, when and on which line, in a file that outlives the process.

A record is its size, marked if a first reading needs it, and a tuple of marshal: time in nanoseconds of the machine's one
monotonic clock, kind, number of the source line, and what the kind says, which pyshmem.check.analyse reads. The file is
mapped: a PE that is killed loses nothing.
"""

from __future__ import annotations

import marshal
import mmap
import os
import struct
import sys
import time
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

now = time.monotonic_ns
dumps = marshal.dumps
_VERSION = 2  # of marshal: later ones look for objects that a record has twice, which takes longer
_CHUNK = 1 << 20
_size = struct.Struct("<I")
pack = _size.pack
_MARK = 1 << 31  # in the size of a record that a first reading needs
Record = tuple[Any, ...]
FENCE, QUIET = "|", "~"  # before the kind of a record: the host has called fence, or quiet, since its last one
_FIRST = ("init", "site", "wait", "fetched", "amo")  # the PE, its lines, and the words that it waits for
IN_KERNEL = "!"  # before the kind of a record of a kernel's program: other threads of the PE may be at work meanwhile
_MARKED = frozenset(
    order + whose + kind for order in ("", FENCE, QUIET) for whose in ("", IN_KERNEL) for kind in _FIRST
)
LIBRARY = str(Path(__file__).parent.parent) + os.sep
_OPERATORS = (f"{LIBRARY}ops{os.sep}", f"{LIBRARY}irregular{os.sep}")  # they stand on the API, as programs do


@cache
def _foreign() -> tuple[str, ...]:
    """Return the folders of the libraries whose lines are no program's."""
    specs = [find_spec(name) for name in ("triton", "torch", "numpy")]
    return tuple(f"{folder}{os.sep}" for spec in specs if spec for folder in spec.submodule_search_locations or ())


def _is_hidden(file: str) -> bool:
    """Whether a file is none of the user's program nor of the operators."""
    if file.startswith(LIBRARY):
        return not file.startswith(_OPERATORS)
    return file[:1] == "<" or file.startswith(_foreign())


class Trace:
    """The file of this process. Any thread writes records, each by one call of the map, which no other thread interrupts."""

    def __init__(self, directory: str) -> None:
        self.path = Path(directory) / f"trace-{os.getpid()}"
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        self._sites: dict[tuple[int, int], int] = {}
        self._codes: list[Any] = []
        self._ids: dict[tuple[str, int], int] = {}
        os.ftruncate(file, _CHUNK)
        self._map = mmap.mmap(file, _CHUNK)
        self._append = self._map.write
        os.close(file)

    def write(self, record: Record) -> None:
        data = dumps(record, _VERSION)
        data = pack(len(data) | _MARK if record[1] in _MARKED else len(data)) + data
        while True:
            try:
                self._append(data)
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
        return self._read(0)

    def first(self) -> Iterator[Record]:
        """Read only the records that a first reading needs."""
        return self._read(_MARK)

    def _read(self, wanted: int) -> Iterator[Record]:
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place, last, load, size_at = 0, len(data) - _size.size, marshal.loads, _size.unpack_from
            while place <= last and (size := size_at(data, place)[0]):
                start = place + _size.size
                place = start + (size & ~_MARK)
                if size & wanted == wanted:
                    try:
                        yield load(data[start:place])
                    except (EOFError, ValueError, TypeError):
                        return
