"""The track of each event: of a thread's host calls, of its interpreted kernels, of a multiprocessor of the GPU, of a
stream's copies, of the proxy, or of the service for one far PE.

A multiprocessor runs several programs at once, and the proxy waits for several gets. Slices of a track lie within each other
or one after the other, so each has as many tracks as it needs; calls of one program stay together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyshmem.timelines.events import COPIES, KERNELS, MULTIPROCESSORS, PROXY, SERVICE, Event

OF_GPU = 1 << 24  # tracks of multiprocessors are numbered from here on, those of threads below
_LANES = 64  # of a multiprocessor
COPIES_FROM = 1 << 26  # and those of copies from here on
_FIRST = {COPIES: COPIES_FROM, PROXY: 1 << 27, SERVICE: 1 << 28}  # the numbers of further tracks
_TEXTS = [("service for PE {}", _FIRST[SERVICE], "service"), ("proxy of kernels", _FIRST[PROXY], "proxy"),
          ("copies on stream {}", _FIRST[COPIES], "copies"), ("multiprocessor {}", OF_GPU, "kernels")]  # fmt: skip


class _Lane:
    def __init__(self) -> None:
        self.program, self.end = -1, 0  # of the event that is the last one and within no other

    def takes(self, event: Event, end: int) -> bool:
        return self.end <= event.begin or (self.program == event.thread and end <= self.end)


def placed(events: Iterable[Event]) -> dict[int, int]:
    """The number of each event's track, by id. events: by their beginnings, what contains others before them."""
    found: dict[int, int] = {}
    lanes: dict[tuple[int, int, int], list[_Lane]] = defaultdict(list)
    for event in events:
        if event.track < MULTIPROCESSORS:
            found[id(event)] = event.thread * 4 + event.track
            continue
        first = _FIRST.get(event.track)
        unit = event.track - MULTIPROCESSORS if first is None else event.thread  # a stream, or the PE that is served
        every, end = lanes[event.pe, event.track, unit], event.ended
        lane = next((each for each in every if each.program == event.thread and each.takes(event, end)), None)
        lane = lane or next((each for each in every if each.takes(event, end)), None)
        if lane is None:
            lane = _Lane()
            every.append(lane)
        lane.program, lane.end = event.thread, max(lane.end, end)
        number = min(every.index(lane), _LANES - 1)
        found[id(event)] = (first or OF_GPU) + unit * _LANES * 4 + number * 4 + MULTIPROCESSORS
    return found


def named(track: int, pid: int) -> tuple[str, int]:
    """(the name of a track, its place among those of its PE). pid: of the PE's process."""
    if track >= OF_GPU:
        text, first, _ = next(row for row in _TEXTS if track >= row[1])
        unit, lane = divmod((track - first) // 4, _LANES)
        return text.format(unit) + (f", {lane + 1}" if lane else ""), track
    thread, kind = divmod(track, 4)
    where = "" if thread == pid else f" of thread {thread}"
    return ("kernels" if kind == KERNELS else "host calls") + where, 4 * (thread != pid) + kind


def side(track: int) -> str:
    """What a track shows, in a word: nothing for host calls."""
    if track < OF_GPU:
        return "kernels" if track % 4 == KERNELS else ""
    return next(word for _, first, word in _TEXTS if track >= first)
