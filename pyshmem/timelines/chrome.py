"""Writes a timeline in Chrome's trace format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pyshmem.base.comparisons import SIGNS
from pyshmem.timelines.arrows import joined
from pyshmem.timelines.events import (
    ADD,
    BEFORE,
    COPIES,
    FAILED,
    FAR,
    HOST,
    KERNELS,
    MEET,
    MEMORY,
    MULTIPROCESSORS,
    OPERATORS,
    SET,
    SPAN,
    TORCH,
    WAITS,
    WORD,
    Event,
    Part,
    plain,
)
from pyshmem.timelines.locality import Again, by_calls, read_again
from pyshmem.timelines.requests import executed
from pyshmem.timelines.taxes import call_of, divided
from pyshmem.timelines.tracks import named, placed
from pyshmem.version import __version__

_DIVIDED = 100_000  # events up to which the file says where the time went, which takes as long as writing it
_BATCH = 64  # events that are written at once, and that a full disk costs
_KINDS = (("wait", "wait"), ("signal_wait", "wait"), ("test", "test"), ("put", "put"), ("p", "put"), ("ibput", "put"),
          ("iput", "put"), ("get", "get"), ("g", "get"), ("iget", "get"), ("ibget", "get"), ("atomic", "atomic"),
          ("signal", "put"), ("fence", "order"), ("quiet", "order"), ("pe_quiet", "order"), ("set_lock", "wait"),
          ("acquire", "wait"), ("__enter__", "wait"), ("load", "get"), ("store", "put"), ("send", "put"), ("recv", "wait"),
          ("sendrecv", "wait"))  # fmt: skip


def kind(event: Event) -> str:
    """The category of an event: put, get, atomic, order, wait, test, meet, operator, torch, kernel, program, span, call, and
    on the tracks of what executes calls request or copy."""
    name = event.name
    if event.track >= COPIES:
        return "copy" if event.track == COPIES else "request"
    if event.op in (MEET, SPAN):
        return "meet" if event.op == MEET else "span"
    if name.startswith(OPERATORS):
        return "operator"
    if name.startswith(TORCH):
        return "torch"
    if event.track == KERNELS and not name.startswith("dev."):
        return "kernel" if event.place == 0 else "program"
    words = plain(name)
    return next((found for start, found in _KINDS if words == start or words.startswith(start + "_")), "call")


def write(path: Path, parts: Sequence[Part]) -> str:
    """Write the events of ``parts`` to ``path``. Return why it has the first ones only, or nothing; "" if it has all."""
    found = sorted((event for part in parts for event in part), key=lambda each: (each.begin, -each.ended))
    again, every = read_again(found), [each for each in found if each.op not in MEMORY]
    start = every[0].begin if every else 0
    slack = max((part.error or 0 for part in parts), default=0)
    pairs, tracks = list(joined(every, slack)), placed(every)
    enders = {id(wait): source.pe for source, wait in pairs}
    ends = {part.pe: max((max(e.begin, e.end) for e in every if e.pe == part.pe), default=start) for part in parts}

    def slices() -> Iterator[dict[str, Any]]:
        for each in every:
            row = _slice(each, tracks[id(each)], start, ends[each.pe], enders.get(id(each)))
            row["args"] |= _again(again.get(id(each)))
            yield row

    metadata = _metadata(parts, every)
    if len(every) <= _DIVIDED:
        calls = [call_of(row) for row in slices()]
        metadata["taxes_us"] = divided(calls).parts
        metadata["read_again_bytes"] = {pe: {name: row.nbytes for name, row in rows.items()}
                                        for pe, rows in by_calls(calls).items()}  # fmt: skip
    head = {"displayTimeUnit": "ns", "metadata": metadata}
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with temporary.open("wb", buffering=0) as file:
        out = _Out(file, (json.dumps(head)[:-1] + ', "traceEvents": [\n').encode())
        out.rows(_names(parts, every, tracks))
        out.rows(slices())
        out.rows(_arrows(pairs, tracks, start, ends))
        out.rows(_requests(every, tracks, start, len(pairs) + 1))
        missing = out.close()
    if out.has_begun:
        temporary.replace(path)
        return missing and f"{missing}: it has the first events"
    temporary.unlink()
    return f"{missing}: it has none"


class _Out:
    """A JSON file whose list of events can end after any batch: on a full disk, its end takes the place of the last one."""

    END = b'{"name": "the rest has found no space", "ph": "i", "s": "g", "ts": 0, "pid": 0, "tid": 0}\n]}\n'

    def __init__(self, file: Any, head: bytes) -> None:
        self._file = file
        self._error = ""
        self.has_begun = self._put(head + b" " * len(self.END) + b"\n")
        self._full = not self.has_begun
        self._ends = [len(head)]  # of batches; the space after the head is for END

    def _put(self, data: bytes) -> bool:
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._error = self._error or error.strerror or ""
        return not data

    def rows(self, rows: Iterable[dict[str, Any]]) -> None:
        source = iter(rows)
        while not self._full and (batch := list(islice(source, _BATCH))):
            self._full = not self._put(
                "".join(json.dumps(row, separators=(",", ":")) + ",\n" for row in batch).encode()
            )
            if not self._full:
                self._ends.append(self._file.tell())

    def close(self) -> str:
        """End the file. Return why not all of it is there, or ""."""
        if not self._full and self._put(b'{"name": "end", "ph": "M", "pid": 0}\n]}\n'):
            return ""
        if self.has_begun:
            self._file.seek(self._ends[-2:][0])
            self._put(self.END)
            self._file.truncate()
        return self._error


def _metadata(parts: Sequence[Part], every: Sequence[Event]) -> dict[str, Any]:
    n_pes = parts[0].n_pes if parts else 0
    known = {part.pe for part in parts}
    return {
        "pyshmem": __version__,
        "pes": n_pes,
        "events": len(every),
        "lost_events": {str(part.pe): part.lost for part in parts if part.lost},
        "lost_because": {str(part.pe): part.because for part in parts if part.lost},
        "unfinished_pes": sorted(part.pe for part in parts if not part.ended),
        "missing_pes": [pe for pe in range(n_pes) if pe not in known],
        "hosts": {str(part.pe): part.host for part in parts},
        "clock_error_us": {str(part.pe): None if part.error is None else part.error / 1e3 for part in parts},
    }


def _names(parts: Sequence[Part], every: Sequence[Event], tracks: dict[int, int]) -> Iterator[dict[str, Any]]:
    for part in parts:
        text = f"PE {part.pe} on {part.host}" + ("" if part.ended else ", which has not ended")
        yield {"name": "process_name", "ph": "M", "pid": part.pe, "tid": 0, "args": {"name": text}}
        yield {"name": "process_sort_index", "ph": "M", "pid": part.pe, "tid": 0, "args": {"sort_index": part.pe}}
        for tid in sorted({tracks[id(each)] for each in every if each.pe == part.pe}):
            name, order = named(tid, part.pid)
            yield {"name": "thread_name", "ph": "M", "pid": part.pe, "tid": tid, "args": {"name": name}}
            yield {"name": "thread_sort_index", "ph": "M", "pid": part.pe, "tid": tid, "args": {"sort_index": order}}


def _slice(event: Event, track: int, start: int, last: int, ender: int | None) -> dict[str, Any]:
    end = event.end or last
    details = _details(event) | ({} if ender is None else {"ended_by": ender})
    row = {"name": event.name, "cat": kind(event), "ph": "X", "pid": event.pe, "tid": track}
    return row | {"ts": (event.begin - start) / 1e3, "dur": (end - event.begin) / 1e3, "args": details}


def _details(event: Event) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if event.nbytes:
        details["bytes"] = event.nbytes
    if event.to >= 0:
        details |= {"pe": event.to, "route": "far" if event.flags & FAR else "near"}
    if event.flags & WORD:
        details["word"] = f"heap offset {event.place}"
        if event.op >= WAITS:
            details["waits_for"] = f"{SIGNS[event.op - WAITS]} {event.value}"
            if event.flags & BEFORE:
                details["began_at"] = event.before
        elif event.op in (SET, ADD):
            details["add" if event.op == ADD else "set"] = event.value
    if event.op == MEET:
        details["team"] = team(event)
    if MULTIPROCESSORS <= event.track < COPIES or kind(event) == "program":
        details["program"] = index(event)
    if not event.end:
        details["unfinished"] = True
    if event.flags & FAILED:
        details["failed"] = True
    return details


def _again(found: Again | None) -> dict[str, Any]:
    if found is None:
        return {}
    details: dict[str, Any] = {"plan": found.plan, "read_again_within": found.within} if found.plan else {}
    return details | ({"read_again": found.earlier} if found.earlier else {})


def team(event: Event) -> str:
    """The team of a call, as start, stride and size, or world. In kernels the programs of one index meet."""
    low = (1 << 21) - 1
    name = f"{event.place >> 42}:{event.place >> 21 & low}:{event.place & low}" if event.place else "world"
    return name + (f" in program {index(event)}" if event.track != HOST else "")


def index(event: Event) -> str:
    """The index of a program in its grid; of a compiled kernel its number."""
    if event.track >= MULTIPROCESSORS:
        return str(event.thread)
    low = (1 << 20) - 1
    return f"{event.value & low}, {event.value >> 20 & low}, {event.value >> 40}"


def _arrows(
    pairs: Sequence[tuple[Event, Event]], tracks: dict[int, int], start: int, ends: dict[int, int]
) -> Iterator[dict[str, Any]]:
    for number, (source, wait) in enumerate(pairs, 1):
        for phase, event in (("s", source), ("f", wait)):
            end = event.end or ends[event.pe]
            time = (max(event.begin, end - 1) - start) / 1e3
            row = {"name": "ends the wait", "cat": "arrow", "ph": phase, "id": number, "pid": event.pe}
            yield row | {"tid": tracks[id(event)], "ts": time} | ({"bp": "e"} if phase == "f" else {})


def _requests(every: Sequence[Event], tracks: dict[int, int], start: int, first: int) -> Iterator[dict[str, Any]]:
    """Arrows from each call to the requests and copies that it has sent. first: the number of the first one."""
    for number, pair in enumerate(executed(every), first):
        for phase, event in zip("sf", pair, strict=True):
            row = {"name": "is executed", "cat": "request", "ph": phase, "id": number, "pid": event.pe}
            yield (
                row
                | {"tid": tracks[id(event)], "ts": (event.begin - start) / 1e3}
                | ({"bp": "e"} if phase == "f" else {})
            )
