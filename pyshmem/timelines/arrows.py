"""Finds the write that ended each wait, on this PE or another one: the arrows of a timeline.

The events of a word are the writes of it, with the value that each leaves, and what its owner saw as its waits began. A wait
that had to wait was ended by the first later write for which its condition holds. Another one found what an earlier write
had left: the first since the condition last did not hold, or since the word got the value that it had, which means that
its owner had taken that one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

from pyshmem.timelines.events import ADD, BEFORE, LAST, MULTIPROCESSORS, ON_GPU, SET, WAITS, WORD, Event

_HOLDS = (eq, ne, gt, ge, lt, le)  # by the numbers of pyshmem.base.comparisons
# nanoseconds, at most, from a compiled kernel's look at a word to the wait's beginning; others look as it begins
_LOOK = 100_000
Word = tuple[int, bool, int]  # the PE, whether on its GPU, the place


class Write(NamedTuple):
    event: Event
    leaves: int  # the value of the word after it
    again: bool  # which the word had already


class History(NamedTuple):
    """What happened to a word, in order, with the time of each: a write's end, or when its owner saw the word."""

    rows: list[Write | Event]
    times: list[int]
    longest: int  # of the writes that have ended

    def under_way(self, begin: int, end: int, step: int = 1) -> Iterator[Write | Event]:
        """What was, or may have been, under way at some time from begin to end. step: -1 gives the last one first."""
        unfinished = bisect_left(self.times, LAST)
        past = bisect_right(self.times, end + self.longest, 0, unfinished)
        places = range(bisect_left(self.times, begin, 0, past), past), range(unfinished, len(self.times))
        for each in places[::step]:
            yield from map(self.rows.__getitem__, each[::step])


def joined(events: Iterable[Event], slack: int = 0) -> Iterator[tuple[Event, Event]]:
    """Pairs of a write and the wait that it ended. slack: the error of the clocks, in nanoseconds."""
    writes, waits = defaultdict(list), []
    seen: dict[Word, list[Event]] = defaultdict(list)
    for each in events:
        if not each.flags & WORD:
            continue
        on_gpu = bool(each.flags & ON_GPU)
        if each.op in (SET, ADD):
            writes[each.to, on_gpu, each.place].append(each)
        elif each.op >= WAITS:
            waits.append(each)
            if each.flags & BEFORE:
                seen[each.pe, on_gpu, each.place].append(each)
    histories = {word: _history(each, seen[word]) for word, each in writes.items()}
    of_pe = defaultdict(list)
    for pe, on_gpu, place in histories:
        of_pe[pe, on_gpu].append(place)
    for wait in waits:
        on_gpu = bool(wait.flags & ON_GPU)
        if wait.flags & BEFORE:
            found = _ending(wait, histories.get((wait.pe, on_gpu, wait.place), _NOTHING), slack)
        else:
            places = (place for place in of_pe[wait.pe, on_gpu] if 0 <= place - wait.place < wait.nbytes)
            found = _ending_of_many(wait, [histories[wait.pe, on_gpu, place] for place in places], slack)
        if found:
            yield found, wait


_NOTHING = History([], [], 0)


def _history(writes: list[Event], seen: list[Event]) -> History:
    """The writes of a word and what its owner saw, with the values of the word."""
    rows = sorted([*((each.ended, 1, each) for each in writes), *((each.begin, 0, each) for each in seen)],
                  key=lambda row: row[:2])  # fmt: skip
    times = [row[0] for row in rows]
    unfinished = bisect_left(times, LAST)
    value, early = 0, set()
    history = History([], [], max((each.end - each.begin for each in writes), default=0))
    for i, (time, is_write, event) in enumerate(rows):
        if not is_write:
            # a write that was under way may have taken effect
            last = bisect_right(times, time + history.longest, i, unfinished)
            for each in (row[2] for row in (*rows[i:last], *rows[unfinished:]) if row[1] and row[2].begin <= time):
                if value == event.before:
                    break
                if event.before == (each.value if each.op == SET else value + each.value):
                    early.add(id(each))
                    history.rows.append(Write(each, event.before, False))
                    history.times.append(time)
                    value = event.before
            value = event.before
            history.rows.append(event)
            history.times.append(time)
        elif id(event) not in early:
            after = event.value if event.op == SET else value + event.value
            history.rows.append(Write(event, after, after == value))
            history.times.append(time)
            value = after
    return history


def _holds(wait: Event, value: int) -> bool:
    return bool(_HOLDS[wait.op - WAITS](value, wait.value))


def _ending(wait: Event, history: History, slack: int) -> Event | None:
    until = wait.ended + slack
    if not _holds(wait, wait.before):
        for each in history.under_way(wait.begin - slack, until):
            if isinstance(each, Write) and each.event.begin <= until:
                ended = each.event.ended
                if ended + slack >= wait.begin and _holds(wait, each.leaves):
                    return each.event
        return _just_before(wait, history, slack)
    found = None
    for each in history.under_way(0, wait.begin + slack, step=-1):
        if isinstance(each, Event):
            if each.begin < wait.begin and not _holds(wait, each.before):
                break
        elif each.event.begin <= wait.begin + slack:
            if not _holds(wait, each.leaves):
                if found or each.event.ended <= wait.begin:
                    break
                continue  # not in effect yet
            found = each.event
            if each.again:
                break
    return found


def _just_before(wait: Event, history: History, slack: int) -> Event | None:
    """The first write that came after a compiled kernel's look at the word, and ended before the wait's beginning."""
    found = None
    early = wait.begin - _LOOK - slack
    for each in history.under_way(early, wait.begin, step=-1) if wait.track >= MULTIPROCESSORS else ():
        if isinstance(each, Write) and early <= each.event.ended < wait.begin:
            if not _holds(wait, each.leaves):
                break
            found = each.event
    return found


def _ending_of_many(wait: Event, histories: list[History], slack: int) -> Event | None:
    """The write that ended a wait for several words, if one came while it waited: of all words the last one needed."""
    ends = []
    for history in histories:
        for each in history.under_way(wait.begin - slack, wait.ended + slack):
            if isinstance(each, Write) and each.event.begin <= wait.ended + slack:
                ended = each.event.ended
                if ended + slack >= wait.begin and _holds(wait, each.leaves):
                    ends.append((ended, each.event))
                    break
    ends.sort(key=lambda row: row[0])
    return ends[-1 if "_all" in wait.name else 0][1] if ends else None
