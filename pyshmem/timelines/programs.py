"""What the programs of kernels did: the time of each mark and of each device call, in interpreted and compiled kernels."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from pyshmem.timelines.events import KERNELS
from pyshmem.timelines.taxes import Call, moments
from pyshmem.timelines.tracks import COPIES_FROM, OF_GPU

UNMARKED = "outside of both"  # in programs of the interpreter


class Done(NamedTuple):
    """How often, and how long in all programs, in microseconds. waited: the part of it that a PE was waited for, by PE."""

    times: int
    time: float
    waited: dict[int, float]


def by_programs(calls: list[Call]) -> dict[int, dict[str, Done]]:
    """Return what was done by PE and name. Each moment of a program counts for the innermost mark or call."""
    found: dict[int, dict[str, Done]] = {}
    for pe in sorted({each.pe for each in calls}):
        tracks = defaultdict(list)
        for each in calls:
            if each.pe == pe and _is_of_programs(each):
                tracks[each.track].append(each)
        times = Counter(_name(each) for own in tracks.values() for each in own)
        spent: dict[str, float] = defaultdict(float)
        waited: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for own in tracks.values():
            for begin, end, stack in moments(own, min(own).begin, max(each.end for each in own)):
                if stack:
                    name, who = _name(stack[-1]), stack[-1].ended_by
                    spent[name] += end - begin
                    if who is not None:
                        waited[name][who] += end - begin
        if spent:
            found[pe] = {name: Done(times[name], time, dict(waited[name])) for name, time in spent.items()}
    return found


def _is_of_programs(call: Call) -> bool:
    return OF_GPU <= call.track < COPIES_FROM or (call.track % 4 == KERNELS and call.kind != "kernel")


def _name(call: Call) -> str:
    return UNMARKED if call.kind == "program" else call.name
