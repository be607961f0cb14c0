"""The track of each event: of a thread's host calls, of its interpreted kernels, or of a multiprocessor of the GPU.

A multiprocessor runs several programs at once. Slices of a track lie within each other or one after the other, so it has as
many tracks as its programs need; calls of one program stay together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyshmem.timelines.events import KERNELS, MULTIPROCESSORS, Event

OF_GPU = 1 << 24  # tracks of multiprocessors are numbered from here on, those of threads below
_LANES = 64  # of a multiprocessor


class _Lane:
    def __init__(self) -> None:
        self.program, self.end = -1, 0  # of the event that is the last one and within no other

    def takes(self, event: Event, end: int) -> bool:
        return self.end <= event.begin or (self.program == event.thread and end <= self.end)


def placed(events: Iterable[Event]) -> dict[int, int]:
    """The number of each event's track, by id. events: by their beginnings, what contains others before them."""
    found: dict[int, int] = {}
    lanes: dict[tuple[int, int], list[_Lane]] = defaultdict(list)
    for event in events:
        if event.track < MULTIPROCESSORS:
            found[id(event)] = event.thread * 4 + event.track
            continue
        every, end = lanes[event.pe, event.track], event.ended
        lane = next((each for each in every if each.program == event.thread and each.takes(event, end)), None)
        lane = lane or next((each for each in every if each.takes(event, end)), None)
        if lane is None:
            lane = _Lane()
            every.append(lane)
        lane.program, lane.end = event.thread, max(lane.end, end)
        number = min(every.index(lane), _LANES - 1)
        found[id(event)] = OF_GPU | (event.track - MULTIPROCESSORS) * _LANES * 4 | number * 4 | MULTIPROCESSORS
    return found


def named(track: int, pid: int) -> tuple[str, int]:
    """(the name of a track, its place among those of its PE). pid: of the PE's process."""
    if track >= OF_GPU:
        multiprocessor, lane = divmod((track - OF_GPU) // 4, _LANES)
        return f"multiprocessor {multiprocessor}" + (f", {lane + 1}" if lane else ""), track
    thread, kind = divmod(track, 4)
    where = "" if thread == pid else f" of thread {thread}"
    return ("kernels" if kind == KERNELS else "host calls") + where, 4 * (thread != pid) + kind
