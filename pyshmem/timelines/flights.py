"""How data pass the links: each put, get or copy alone, or in a kernel the stores that follow each other, with the fence or
signal behind them, and nothing else between.

A store of a kernel ends when it has been handed over; what orders or signals waits until the data are there. So a flight
lasts from the first store to the end of that. All programs of a PE share its links: with a flight pass its own bytes, and
the part of each other flight's that falls into its time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyshmem.timelines.taxes import Call

CALLS, KERNELS, COPIES = ROUTES = "puts and gets", "stores and loads of kernels", "copies"
_WORD = 8  # bytes, at most, of a signal


class Flight(NamedTuple):
    """Times are in microseconds. passing: bytes that pass the links meanwhile, with its own."""

    begin: float
    end: float
    nbytes: float
    passing: float = 0.0


def leaves(call: Call) -> bool:
    """Whether a call of a kernel, or a copy, reaches another PE."""
    return call.kind in ("put", "get", "copy", "atomic") and 0 <= call.to != call.pe


def signals(call: Call) -> bool:
    """Whether a call of a kernel lasts until another PE has seen it, or all before it, and moves no data."""
    return call.kind == "order" or (leaves(call) and call.nbytes <= _WORD)


def of_copies(calls: Iterable[Call]) -> Iterator[Flight]:
    return (Flight(call.begin, call.end, call.nbytes) for call in calls if leaves(call) and call.end > call.begin)


def of_programs(calls: Iterable[Call]) -> Iterator[Flight]:
    """The flights of a track, whose calls are in order. What nobody orders or signals lasts for an unknown time."""
    begin = nbytes = 0.0
    for call in calls:
        if signals(call):
            if nbytes:
                yield Flight(begin, call.end, nbytes)
            nbytes = 0.0
        elif call.kind == "put" and leaves(call):
            begin = begin if nbytes else call.begin
            nbytes += call.nbytes
        elif call.kind == "get" and leaves(call):
            yield Flight(call.begin, call.end, call.nbytes)
            nbytes = 0.0
        else:
            nbytes = 0.0


def sharing(flights: Iterable[Flight]) -> list[Flight]:
    """The flights of a PE by their beginnings, with the bytes that pass meanwhile. The bytes of each pass evenly."""
    flights = sorted(each for each in flights if each.end > each.begin)
    rates = [(each.begin, each.nbytes / (each.end - each.begin)) for each in flights]
    rates += [(each.end, -each.nbytes / (each.end - each.begin)) for each in flights]
    passed, rate, last = 0.0, 0.0, 0.0
    until: dict[float, float] = {}  # bytes that have passed, by time
    for time, change in sorted(rates):
        passed += rate * (time - last)
        rate, last = rate + change, time
        until[time] = passed
    return [each._replace(passing=until[each.end] - until[each.begin]) for each in flights]


def under_way(flights: Sequence[Flight], begin: float, end: float) -> Flight | None:
    """The flight of a track that has this time. flights: of the track, by their beginnings."""
    place = bisect_right(flights, begin, key=lambda each: each.begin) - 1
    return flights[place] if place >= 0 and end <= flights[place].end else None
