"""Finds the write that ended each wait, on this PE or another one: the arrows of a timeline.

The events of a word are the writes of it, with the value that each leaves, and what its owner saw as its waits began. A wait
that had to wait was ended by the first later write for which its condition holds. Another one found what an earlier write
had left: the first since the condition last did not hold, or since the word got the value that it had, which means that
its owner had taken that one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

from pyshmem.timelines.events import ADD, BEFORE, ON_GPU, SET, WAITS, WORD, Event

_HOLDS = (eq, ne, gt, ge, lt, le)  # by the numbers of pyshmem.runtime.comparisons
_LAST = 1 << 62
Word = tuple[int, bool, int]  # the PE, whether on its GPU, the place


class Write(NamedTuple):
    event: Event
    leaves: int  # the value of the word after it
    again: bool  # which the word had already


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
            found = _ending(wait, histories.get((wait.pe, on_gpu, wait.place), []), slack)
        else:
            places = (place for place in of_pe[wait.pe, on_gpu] if 0 <= place - wait.place < wait.nbytes)
            found = _ending_of_many(wait, [histories[wait.pe, on_gpu, place] for place in places], slack)
        if found:
            yield found, wait


def _history(writes: list[Event], seen: list[Event]) -> list[Write | Event]:
    """The writes of a word and what its owner saw, in order, with the values of the word."""
    rows = sorted([*((each.end or _LAST, 1, each) for each in writes), *((each.begin, 0, each) for each in seen)],
                  key=lambda row: row[:2])  # fmt: skip
    value, early = 0, set()
    history: list[Write | Event] = []
    for i, (time, is_write, event) in enumerate(rows):
        if not is_write:
            # a write that was under way may have taken effect
            for each in (row[2] for row in rows[i:] if row[1] and row[2].begin <= time):
                if value == event.before:
                    break
                if each.op == ADD and value + each.value == event.before:
                    early.add(id(each))
                    history.append(Write(each, event.before, False))
                    value = event.before
            value = event.before
            history.append(event)
        elif id(event) not in early:
            after = event.value if event.op == SET else value + event.value
            history.append(Write(event, after, after == value))
            value = after
    return history


def _holds(wait: Event, value: int) -> bool:
    return bool(_HOLDS[wait.op - WAITS](value, wait.value))


def _ending(wait: Event, history: list[Write | Event], slack: int) -> Event | None:
    until = (wait.end or _LAST) + slack
    if not _holds(wait, wait.before):
        for each in history:
            if isinstance(each, Write) and each.event.begin <= until:
                ended = each.event.end or _LAST
                if ended + slack >= wait.begin and _holds(wait, each.leaves):
                    return each.event
        return None
    found = None
    for each in reversed(history):
        if isinstance(each, Event):
            if each.begin < wait.begin and not _holds(wait, each.before):
                break
        elif each.event.begin <= wait.begin + slack:
            if not _holds(wait, each.leaves):
                if found or (each.event.end or _LAST) <= wait.begin:
                    break
                continue  # not in effect yet
            found = each.event
            if each.again:
                break
    return found


def _ending_of_many(wait: Event, histories: list[list[Write | Event]], slack: int) -> Event | None:
    """The write that ended a wait for several words, if one came while it waited: of all words the last one needed."""
    ends = []
    for history in histories:
        for each in history:
            if isinstance(each, Write) and each.event.begin <= (wait.end or _LAST) + slack:
                ended = each.event.end or _LAST
                if ended + slack >= wait.begin and _holds(wait, each.leaves):
                    ends.append((ended, each.event))
                    break
    ends.sort(key=lambda row: row[0])
    return ends[-1 if "_all" in wait.name else 0][1] if ends else None
