"""The events of a PE, as pyshmem.native._native has written them, and its notes: names, clocks, the end.

Imports no torch, because pyshmemrun reads them too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyshmem.base.layout import format_of, number, numbers

NONE, SET, ADD, MEET, SPAN = *numbers("OP_NONE", "OP_SET", "OP_ADD", "OP_MEET"), 4
READS, WRITES, ENDS, PLAN = numbers("OP_READS", "OP_WRITES", "OP_ENDS", "OP_PLAN")
MEMORY = (READS, WRITES, ENDS, PLAN)  # events that belong to a call: what it reads and writes, see locality
WAITS = number("OP_WAITS")  # and the number of the comparison
FAR, FAILED, ON_GPU = numbers("EVENT_FAR", "EVENT_FAILED", "EVENT_ON_GPU")
WORD, BEFORE, SENT = numbers("EVENT_WORD", "EVENT_BEFORE", "EVENT_SENT")
HOST, KERNELS, PROXY, SERVICE = numbers("OF_HOST", "OF_KERNELS", "OF_PROXY", "OF_SERVICE")  # tracks
MULTIPROCESSORS, COPIES = 2, 0xFFFD  # tracks, too; of compiled kernels one for each multiprocessor, from that number on
# what a request does, by the numbers of far/protocol.h
REQUESTS = "none", "put", "get", "iput", "iget", "atomic", "atomic_fetch", "barrier", "flush"
LAST = 1 << 62  # after all times
_HEAD, EVENT = format_of("events_head_t"), format_of("event_t")
_FIRST = number("EVENTS_HEAD")


_C_TYPES = ("ctx", "short", "int", "long", "longlong", "float", "double", "char", "schar", "uchar", "ushort", "uint",
            "ulong", "ulonglong", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "size",
            "ptrdiff", "longdouble", "complexf", "complexd")  # fmt: skip
_C_SIZES = re.compile(r"^(i?b?put|i?b?get)(mem|\d+)")


TORCH = "torch."  # what the names of torch's operators begin with
OPERATORS = ("shmem.ops.", "shmem.irregular.")  # what their names begin with


def plain(label: str) -> str:
    """The name of a call as in Python: "shmem.Team.sync" is sync, "shmem_ctx_long_p" p, "shmem_putmem_signal" put_signal."""
    name = label.rpartition(".")[2]
    if not name.startswith("shmem_"):
        return name
    words = name.split("_")[1:]
    while words[0] in _C_TYPES:
        words.pop(0)
    return _C_SIZES.sub(r"\1", "_".join(words))


class Event(NamedTuple):
    """A call. begin, end: nanoseconds; end is 0 if the PE never came back from it. pe: of which it is; to: the other.

    thread: of the process, or the program of a compiled kernel; of a copy, its stream. A request that the service or the
    proxy has executed is an event too; value: its number, and to: for the service the PE that has sent it.
    """

    pe: int
    begin: int
    end: int
    nbytes: int
    place: int
    value: int
    before: int
    to: int
    name: str
    thread: int
    op: int
    flags: int
    track: int

    @property
    def ended(self) -> int:
        """The end, or LAST if the PE never came back."""
        return self.end or LAST


def limited(most: int) -> str:
    """Why events beyond so many were lost."""
    return f"PYSHMEM_TRACE_EVENTS is {most}"


class _File:
    """Events as trace/file.h writes them; none if there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken, self._room, self._error, self.closed = 0, 0, 0, 0
        if path.is_file() and path.stat().st_size >= _FIRST:
            with path.open("rb") as file:
                self._taken, self._room, self._error, self.closed = _HEAD.unpack(file.read(_HEAD.size))

    @property
    def lost(self) -> int:
        return max(0, self._taken - self._room)

    @property
    def because(self) -> list[str]:
        """Why events were lost, if any were."""
        reason = f"{self._path.name}: {os.strerror(self._error & 0xFFFF)}" if self._error else limited(self._room)
        return [reason] if self.lost else []

    def rows(self) -> bytes:
        if not self._taken:
            return b""
        with self._path.open("rb") as file:
            file.seek(_FIRST)
            most = min(self._taken, self._room) * EVENT.size
            return file.read(min(most, self._path.stat().st_size))


class Part:
    """What one PE has left. clocks: (time here, this clock less PE 0's, the error of that), in nanoseconds."""

    def __init__(self, notes: Path) -> None:
        self.names: dict[int, str] = {}
        self.clocks: list[tuple[int, int, int]] = []
        self.pe, self.n_pes, self.host, self.pid, self.ended = -1, 0, "?", 0, False
        self.lost_in_kernels = 0
        self.gpu_errors: list[int | None] = []
        self._because_in_kernels: list[str] = []
        for line in notes.read_text(errors="replace").splitlines():
            try:
                self._take(json.loads(line))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                break  # cut where the disk was full, or damaged
        self._calls, self._requests = _File(notes.with_suffix(".events")), _File(notes.with_suffix(".requests"))
        self._gpu = notes.with_suffix(".kernels")
        self.ended |= bool(self._calls.closed)  # also where the notes had no space

    def _take(self, note: dict[str, Any]) -> None:
        self.pe, self.n_pes = int(note.get("pe", self.pe)), int(note.get("n_pes", self.n_pes))
        self.host, self.pid = str(note.get("host", self.host)), int(note.get("pid", self.pid))
        self.ended |= "end" in note
        if "name" in note:
            number, name = note["name"]
            self.names[int(number)] = str(name)
        if "clock" in note:
            here, ahead, error = map(int, note["clock"])
            self.clocks.append((here, ahead, error))
        if "kernels" in note:
            lost, off, because = note["kernels"]
            self.lost_in_kernels += int(lost)
            self.gpu_errors.append(None if off is None else int(off))
            self._because_in_kernels += map(str, because)

    @property
    def lost(self) -> int:
        return self._calls.lost + self._requests.lost + self.lost_in_kernels

    @property
    def because(self) -> list[str]:
        """Why events were lost: the file and its error, or the limit."""
        found = [*self._calls.because, *self._requests.because, *self._because_in_kernels]
        return list(dict.fromkeys(found))

    def __iter__(self) -> Iterator[Event]:
        """The events by their beginnings, on PE 0's clock."""
        data = self._calls.rows() + self._requests.rows()
        if self._gpu.is_file():
            data += self._gpu.read_bytes()
        found = []
        for row in EVENT.iter_unpack(data[: len(data) // EVENT.size * EVENT.size]):
            begin, end, *rest, name, thread, op, flags, track = row
            if 0 < begin < LAST and (not end or begin <= end < LAST):  # 0: taken as the PE was killed
                words = (*rest, self._named(name, track), thread, op, flags, track)
                start = self.aligned(begin)
                found.append(Event(self.pe, start, max(start, self.aligned(end)) if end else 0, *words))
        return iter(sorted(found, key=lambda each: (each.begin, -each.end)))

    def _named(self, number: int, track: int) -> str:
        if track in (PROXY, SERVICE):
            what = REQUESTS[number] if number < len(REQUESTS) else f"request {number}"
            return f"{'proxy' if track == PROXY else 'service'}.{what}"
        return self.names.get(number, f"call {number}")

    def aligned(self, time: int) -> int:
        """A time of this PE on PE 0's clock: between two comparisons of the clocks, in proportion."""
        if not self.clocks:
            return time
        (first, early, _), (last, late, _) = self.clocks[0], self.clocks[-1]
        for after in self.clocks:
            if after[0] >= time:
                last, late, _ = after
                break
            first, early, _ = after
        if last <= first:
            return time - early
        share = min(1.0, max(0.0, (time - first) / (last - first)))
        return time - early - round((late - early) * share)

    @property
    def error(self) -> int | None:
        """The error of the alignment, with that of the GPU's clock, in nanoseconds; None if a clock was never compared."""
        if not self.clocks or None in self.gpu_errors:
            return None
        return max(each[2] for each in self.clocks) + max((each or 0 for each in self.gpu_errors), default=0)
