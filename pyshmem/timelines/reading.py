"""Reads a timeline. The file may be damaged, or anybody's: what is no timeline is refused, and nothing of it is executed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from pyshmem.timelines.taxes import Arrow, Call, call_of

_LONGEST = 1e16  # microseconds: more than 64 bits have nanoseconds for
_MOST = 1 << 64  # of other numbers


def read(path: Path) -> tuple[list[Call], list[Arrow], list[str]]:
    """The calls and arrows of a timeline, and what is incomplete in it. Errors: OSError; ValueError if it is none."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise ValueError(f"got no file {path}; expected a timeline: pyshmemrun --trace {path} writes one") from None
    except ValueError:  # no text
        text = ""
    try:
        found = json.loads(text, parse_constant=_refused)
        rows = found["traceEvents"]
        calls = [_call(row) for row in rows if row["ph"] == "X"]
        sources = {_whole(row["id"]): _end(row) for row in rows if row["ph"] == "s"}
        arrows = [Arrow(*sources[row["id"]], *_end(row), row["cat"] == "request") for row in rows if row["ph"] == "f"]
        return calls, arrows, [_printable(line) for line in _notes(found["metadata"])]
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise ValueError(f"got {path}; expected a timeline that pyshmemrun --trace has written") from None


def _call(row: dict[str, Any]) -> Call:
    """The call of a slice, each of its fields of the right type."""
    _time(row["ts"])
    _require(_time(row["dur"]) >= 0)
    call = call_of(row)
    for number in (
        call.pe,
        call.track,
        call.nbytes,
        call.to,
        call.within,
        0 if call.ended_by is None else call.ended_by,
    ):
        _whole(number)
    for _, nbytes in call.earlier:
        _whole(nbytes)
    names = (call.name, call.kind, call.team, call.plan)
    if not all(map(str.isprintable, names)):
        name, kind, team, plan = map(_printable, names)
        call = call._replace(name=name, kind=kind, team=team, plan=plan)
    if call.earlier:
        call = call._replace(earlier=tuple((_printable(who), nbytes) for who, nbytes in call.earlier))
    return call


def _end(row: dict[str, Any]) -> tuple[int, int, float]:
    """One end of an arrow: PE, track, time."""
    return _whole(row["pid"]), _whole(row["tid"]), _time(row["ts"])


def _time(value: Any) -> float:
    _require(type(value) in (int, float) and abs(value) < _LONGEST)
    return float(value)


def _whole(value: Any) -> int:
    _require(type(value) is int and abs(value) < _MOST)
    return int(value)


def _require(right: bool) -> None:
    if not right:
        raise ValueError


def _refused(name: str) -> NoReturn:
    """Errors: ValueError for NaN and Infinity."""
    raise ValueError(name)


def _printable(text: str) -> str:
    """The text without what a terminal obeys."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def _notes(metadata: dict[str, Any]) -> Iterator[str]:
    for pe, lost in metadata["lost_events"].items():
        yield f"PE {pe} has lost its last {lost} events: {', '.join(metadata['lost_because'][pe])}"
    if metadata["unfinished_pes"]:
        yield f"PEs that have not ended: {metadata['unfinished_pes']}"
    if metadata["missing_pes"]:
        yield f"PEs without events: {metadata['missing_pes']}"
    if error := max((_time(each or 0) for each in metadata["clock_error_us"].values()), default=0):
        yield f"times of GPUs and of other hosts have an error of up to {error:.1f} us"
