"""When the stores of a kernel are under way: those that follow each other, with the fence or signal behind them, and nothing
else between.

A store of a kernel ends when it has been handed over; what orders or signals waits until the data are there. So a flight
lasts from the first store to the end of that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyshmem.timelines.taxes import Call

_WORD = 8  # bytes, at most, of a signal


class Flight(NamedTuple):
    """Times are in microseconds."""

    begin: float
    end: float


def _leaves(call: Call) -> bool:
    """Whether a call of a kernel reaches another PE."""
    return call.kind in ("put", "get", "atomic") and 0 <= call.to != call.pe


def _signals(call: Call) -> bool:
    """Whether a call of a kernel lasts until another PE has seen it, or all before it, and moves no data."""
    return call.kind == "order" or (_leaves(call) and call.nbytes <= _WORD)


def of_programs(calls: Iterable[Call]) -> Iterator[Flight]:
    """The flights of a track, whose calls are in order. What nobody orders or signals lasts for an unknown time."""
    begin: float | None = None
    for call in calls:
        if _signals(call):
            if begin is not None:
                yield Flight(begin, call.end)
            begin = None
        elif call.kind == "put" and _leaves(call):
            begin = call.begin if begin is None else begin
        else:
            if call.kind == "get" and _leaves(call):
                yield Flight(call.begin, call.end)
            begin = None


def under_way(flights: Sequence[Flight], begin: float, end: float) -> bool:
    """Whether one of the flights of a track has this time. flights: of the track, by their beginnings."""
    place = bisect_right(flights, begin, key=lambda each: each.begin) - 1
    return place >= 0 and end <= flights[place].end
