"""Runs the steps of all threads without a part of their time. What a step waits for is looked up once for all runs.

Moments have numbers. Nobody waits for most of them, and these have none.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from pyshmem.timelines.steps import BEGIN, END, Moment, Step, Thread, moment
from pyshmem.timelines.taxes import COMMUNICATION, LIBRARY, MEETING, OF_LIBRARY, Call

_NONE = -1


class Wired(NamedTuple):
    """A step with the numbers of moments: of its begin and end, of what it reaches, and of what it waits for.

    length: its own. What ends when others let it end has none.  after: it ends so long after each of these moments.
    came: of a meeting, when its members come.  rest: how long a meeting takes from then on.  write: as after, of a wait.
    """

    step: Step
    length: float
    opens: int
    closes: int
    reaches: int
    after: tuple[tuple[int, float], ...]
    came: tuple[int, ...]
    rest: float
    write: tuple[int, float] | None


Stretch = dict[str, float]  # by part, the time of successive steps that no thread waits for, and that wait for none


class Runs:
    """The steps of a timeline. start: of all threads.  last, members, writes: as a Timeline has them."""

    def __init__(
        self, steps: Mapping[Thread, Sequence[Step]], start: float, last: Mapping[Call, Call],
        members: Mapping[Call, Sequence[Call]], writes: Mapping[Call, Call],
    ) -> None:  # fmt: skip
        self.start = start
        self._numbers: dict[Moment, int] = {}
        self._last, self._members, self._writes = last, members, writes
        self._came: dict[Call, tuple[int, ...]] = {}  # by the last member of a meeting
        waiting = {thread: [self._waiting(each) for each in own] for thread, own in steps.items()}
        self.steps = {thread: [*self._stretched(own)] for thread, own in waiting.items()}
        self.count = len(self._numbers)

    def time(self, without: str = "") -> float:
        """Return the time of the program, in microseconds, if a part took no time: see Timeline.replay."""
        return _Run(self, without).time()

    def _number(self, which: Moment) -> int:
        return self._numbers.setdefault(which, len(self._numbers))

    def _waiting(self, step: Step) -> Wired:
        """The step with the moments that it waits for."""
        call = step.call
        wired = Wired(step, step.end - step.begin, _NONE, _NONE, _NONE, (), (), 0.0, None)
        if step.after:
            return wired._replace(length=0.0, after=tuple((self._number(which), lag) for which, lag in step.after))
        if call is None:
            return wired
        last = self._last.get(call) if call.kind == "meet" else None
        if last is not None:
            if last not in self._came:
                self._came[last] = tuple(self._number(moment(BEGIN, each)) for each in self._members[last])
            rest = max(0.0, step.end - max(step.begin, last.begin))
            return wired._replace(length=0.0, came=self._came[last], rest=rest)
        write = self._writes.get(call)
        if write is None:
            return wired
        length = 0.0 if call.begin < write.end else wired.length
        return wired._replace(length=length, write=self._written(call, write) if step.closes else None)

    def _written(self, call: Call, write: Call) -> tuple[int, float]:
        """The moment of a write that ends a wait, and how long after it the wait ends."""
        if call.end < write.end:  # a word is seen before the call that writes it returns
            return self._number(moment(BEGIN, write)), call.end - write.begin
        return self._number(moment(END, write)), call.end - write.end if call.begin < write.end else 0.0

    def _stretched(self, every: Iterable[Wired]) -> Iterator[Wired | Stretch]:
        """The steps with the numbers of their own moments, once all are known that somebody waits for."""
        alone: list[Step] = []
        for wired in every:
            numbers = self._own_numbers(wired.step)
            if max(numbers) == _NONE and not (wired.after or wired.came or wired.write):
                alone.append(wired.step)
                continue
            if alone:
                yield _stretch(alone)
                alone = []
            yield wired._replace(opens=numbers[0], closes=numbers[1], reaches=numbers[2])
        if alone:
            yield _stretch(alone)

    def _own_numbers(self, step: Step) -> tuple[int, int, int]:
        call, known = step.call, self._numbers
        return (
            known.get(moment(BEGIN, call), _NONE) if call and step.opens else _NONE,
            known.get(moment(END, call), _NONE) if call and step.closes else _NONE,
            known.get(step.reaches, _NONE) if step.reaches else _NONE,
        )


def _stretch(steps: Sequence[Step]) -> Stretch:
    lengths: dict[str, float] = defaultdict(float)
    for each in steps:
        lengths[each.part] += each.end - each.begin
    return dict(lengths)


class _Run:
    def __init__(self, runs: Runs, without: str) -> None:
        self._start, self._steps, self._without = runs.start, runs.steps, without
        self._times: list[float | None] = [None] * runs.count  # of the moments that have been reached
        self._blocked: dict[int, list[Thread]] = defaultdict(list)
        self._ready = deque(runs.steps)
        self._now = dict.fromkeys(runs.steps, runs.start)
        self._next = dict.fromkeys(runs.steps, 0)

    def time(self) -> float:
        steps = self._steps
        while True:
            while self._ready:
                self._advance(self._ready.popleft())
            left = [each for each in steps if self._next[each] < len(steps[each])]
            if not left:
                return max(self._now.values(), default=0.0) - self._start
            # clocks disagree: the earliest goes on
            awaiting = {each: cast("Wired", steps[each][self._next[each]]) for each in left}  # no stretch waits
            first = min(left, key=lambda each: awaiting[each].step.end)
            wired = awaiting[first]
            for threads in self._blocked.values():
                if first in threads:
                    threads.remove(first)
            self._now[first] += wired.step.end - wired.step.begin
            self._next[first] += 1
            self._end(wired, self._now[first])
            self._ready.append(first)

    def _advance(self, thread: Thread) -> None:
        """Take steps of a thread until one must wait for another thread."""
        steps, place, now = self._steps[thread], self._next[thread], self._now[thread]
        while place < len(steps):
            wired = steps[place]
            if isinstance(wired, dict):
                now += sum(length for part, length in wired.items() if part != self._without)
                place += 1
                continue
            if wired.opens != _NONE:
                self._reach(wired.opens, now)
            until = -math.inf
            if wired.after or wired.came or wired.write:
                found = self._until(wired)
                if found is None:
                    self._blocked[self._missing(wired)].append(thread)
                    break
                until = found
            now = max(now + self._length(wired), until)
            place += 1
            self._end(wired, now)
        self._next[thread], self._now[thread] = place, now

    def _end(self, wired: Wired, end: float) -> None:
        if wired.closes != _NONE:
            self._reach(wired.closes, end)
        if wired.reaches != _NONE:
            self._reach(wired.reaches, end)

    def _reach(self, which: int, time: float) -> None:
        if self._times[which] is None:
            self._times[which] = time
        self._ready.extend(self._blocked.pop(which, ()))

    def _until(self, wired: Wired) -> float | None:
        """When others let the step end; None if they have not reached a moment of it."""
        step, times, latest = wired.step, self._times, -math.inf
        factor = 0.0 if step.part == self._without else 1.0
        for which, lag in wired.after:
            time = times[which]
            if time is None:
                return None
            latest = max(latest, time + lag * factor)
        if wired.after or step.part == self._without:
            return latest
        for which in wired.came:
            time = times[which]
            if time is None:
                return None
            latest = max(latest, time)
        if wired.came:
            own = LIBRARY if step.call and step.call.name in OF_LIBRARY else COMMUNICATION
            return latest + wired.rest * (0.0 if self._without == own else factor)
        time = times[wired.write[0]] if wired.write else latest
        return time + wired.write[1] if wired.write and time is not None else time

    def _missing(self, wired: Wired) -> int:
        """The first moment that lets the step end and has not been reached."""
        every = [which for which, _ in wired.after] or wired.came or ([wired.write[0]] if wired.write else [])
        return next(which for which in every if self._times[which] is None)

    def _length(self, wired: Wired) -> float:
        """The least time of a step: that of waits, and of meetings, is what others let them take."""
        step = wired.step
        if step.part == self._without:
            return wired.rest if step.part == MEETING else 0.0
        return wired.length
