"""What calls wrote to memory and later calls of the same PE read again, by the ranges that they have recorded.

Calls count in the order in which they were made. A byte counts once, at the first call that reads it, for the last one
that wrote it. Calls within a call are part of it; what calls within an operator access is not known as a whole, since torch
does, too, so that only its own operands and results count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from pyshmem.timelines.events import ENDS, HOST, MEMORY, OPERATORS, PLAN, READS, WRITES, Event
from pyshmem.timelines.taxes import Call


class Again(NamedTuple):
    """The bytes that a call read again. within: what kernels of the call itself wrote.  earlier: by the calls that wrote it.

    plan: which performed the call, "" if it is not known.
    """

    plan: str
    within: int
    earlier: dict[str, int]


class Written:
    """Who wrote which memory last. Ranges do not overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._rest: list[tuple[int, Event]] = []  # the end of each range, and the call that wrote it

    def take(self, start: int, end: int) -> list[tuple[int, int, Event]]:
        """Forget a range, and return what was known of it: (start, end, who wrote it)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        last = bisect_left(self._starts, end)
        found, left = [], []
        for at, (until, who) in zip(self._starts[first:last], self._rest[first:last], strict=True):
            if max(at, start) < min(until, end):
                found.append((max(at, start), min(until, end), who))
            left += [(a, b, who) for a, b in ((at, min(until, start)), (max(at, end), until)) if a < b]
        self._starts[first:last] = [at for at, _, _ in left]
        self._rest[first:last] = [(until, who) for _, until, who in left]
        return found

    def put(self, start: int, end: int, who: Event) -> None:
        """``who`` has written a range."""
        self.take(start, end)
        place = bisect_left(self._starts, start)
        self._starts.insert(place, start)
        self._rest.insert(place, (end, who))


def read_again(events: Iterable[Event]) -> dict[int, Again]:
    """Return what each outermost call has read again, by its id; those of which nothing is known have no entry.

    events: by their beginnings, what contains others before them.
    """
    calls, ranges = _outermost(events)
    plans: dict[int, list[Event]] = defaultdict(list)
    earlier: dict[int, Counter[int]] = defaultdict(Counter)  # by the ids of the calls that read and that wrote
    memory: dict[int, Written] = defaultdict(Written)
    for event, call in sorted(ranges, key=lambda each: each[0].end):
        written, end = memory[event.pe], event.place + event.nbytes
        if event.op == PLAN and call:
            plans[id(call)].append(event)
        elif event.op == ENDS:
            written.take(event.place, end)
        elif event.op == WRITES and call:
            written.put(event.place, end, call)
        elif event.op == READS and call:
            for first, last, who in written.take(event.place, end):
                if who is call:
                    written.put(first, last, who)
                else:
                    earlier[id(call)][id(who)] += last - first
    names = {
        id(each): (plans[id(each)][-1] if id(each) in plans else each).name.removeprefix("shmem.") for each in calls
    }
    found = {}
    for each in calls:
        own, by_name = plans.get(id(each), []), Counter[str]()
        for writer, nbytes in earlier[id(each)].items():
            by_name[names[writer]] += nbytes
        if own or by_name:
            within = sum(plan.nbytes for plan in own)
            found[id(each)] = Again(names[id(each)] if own else "", within, dict(by_name))
    return found


def _outermost(events: Iterable[Event]) -> tuple[list[Event], list[tuple[Event, Event | None]]]:
    """(the calls of threads that lie in no other, events of MEMORY with the one that each belongs to)."""
    calls: list[Event] = []
    ranges: list[tuple[Event, Event | None]] = []
    last: dict[tuple[int, int], Event] = {}  # by PE and thread
    for event in events:
        if event.track != HOST:
            continue
        outer = last.get((event.pe, event.thread))
        if event.op in MEMORY:
            ranges.append((event, outer if outer and _belongs(event, outer) else None))
        elif outer is None or outer.ended <= event.begin:
            last[event.pe, event.thread] = event
            calls.append(event)
    return calls, ranges


def _belongs(event: Event, outer: Event) -> bool:
    """Whether an event of MEMORY is of this call: of an operator not those of calls within it, but for its plan."""
    own = event.op == PLAN or event.begin == outer.begin or not outer.name.startswith(OPERATORS)
    return own and event.begin <= outer.ended


class Row(NamedTuple):
    """What the calls of one name or plan on a PE have read again.

    within: bytes that kernels of a call wrote for later ones of it; None if no plan is known.  writers: bytes that earlier
    calls wrote, by their names.
    """

    calls: int
    within: int | None
    writers: dict[str, int]

    @property
    def earlier(self) -> int:
        """The bytes that earlier calls wrote."""
        return sum(self.writers.values())

    @property
    def nbytes(self) -> int:
        """All that was read again."""
        return (self.within or 0) + self.earlier


def by_calls(calls: Iterable[Call]) -> dict[int, dict[str, Row]]:
    """Return what calls have read again by PE, and by the plan or else the name of the call; the most first."""
    found: dict[int, dict[str, Row]] = defaultdict(dict)
    for each in calls:
        if each.plan or each.earlier:
            own, name = found[each.pe], each.plan or each.name.removeprefix("shmem.")
            row = own.get(name, Row(0, 0 if each.plan else None, {}))
            within = None if row.within is None else row.within + each.within
            own[name] = Row(row.calls + 1, within, Counter(row.writers) + Counter(dict(each.earlier)))
    return {pe: dict(sorted(rows.items(), key=lambda item: -item[1].nbytes)) for pe, rows in sorted(found.items())}
