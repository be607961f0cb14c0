"""Replays a timeline with other times: how long the program would have taken if a part of it took another time.

What a PE does, one thing after the other, keeps its order. A wait ends as long after the write that ended it as it did; a
meeting goes on when its last member has come. All else takes its time, times a factor. Without changes the replay takes as
long as the timeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pyshmem.timelines.taxes import (
    COMMUNICATION,
    LIBRARY,
    MEETING,
    OF_LIBRARY,
    PARTS,
    WAITING,
    Arrow,
    Call,
    last_to_come,
    main_thread,
    moments,
    part_of,
)

Scale = Callable[["Step"], float]


class Step(NamedTuple):
    """A piece of a PE's time, in which the same calls are under way. Times are in microseconds."""

    begin: float
    end: float
    part: str
    call: Call | None  # the innermost
    opens: bool  # whether the call begins and ends with it
    closes: bool


class Timeline:
    """The steps of all PEs, and what each waits for."""

    def __init__(self, calls: list[Call], arrows: Iterable[Arrow]) -> None:
        self.start = min((each.begin for each in calls), default=0.0)
        self.end = max((each.end for each in calls), default=0.0)
        self.last = last_to_come(calls)
        self.members: dict[Call, list[Call]] = defaultdict(list)  # of a meeting, by the last to come
        for call, last in self.last.items():
            self.members[last].append(call)
        self.steps: dict[int, list[Step]] = {}
        for pe in sorted({each.pe for each in calls}):
            own = main_thread([each for each in calls if each.pe == pe])
            kernels = [each for each in own if each.kind == "kernel"]
            gaps = (
                min((each.end for each in kernels), default=self.end),
                max((each.begin for each in kernels), default=0.0),
            )
            self.steps[pe] = [
                self._step(begin, end, list(stack), gaps) for begin, end, stack in moments(own, self.start, self.end)
            ]
        done = {each.call for steps in self.steps.values() for each in steps}
        self.writes = {wait: write for wait, write in _ends(calls, arrows).items() if wait in done and write in done}

    def _step(self, begin: float, end: float, stack: list[Call], gaps: tuple[float, float]) -> Step:
        call = stack[-1] if stack else None
        between = gaps[0] <= begin and end <= gaps[1]
        part = MEETING if call in self.last else part_of(call, between)
        return Step(begin, end, part, call, bool(call and begin == call.begin), bool(call and end == call.end))

    def unexplained(self) -> float:
        """The time of waits without an arrow, which keep their length."""
        return sum(each.end - each.begin for steps in self.steps.values() for each in steps
                   if each.part == WAITING and each.call not in self.writes)  # fmt: skip

    def replay(self, scale: Scale, without: str = "") -> float:
        """Return the time of the program if each step takes ``scale`` times as long. without: a part that takes no time."""
        return _Replay(self, scale, without).run()


class _Replay:
    def __init__(self, timeline: Timeline, scale: Scale, without: str) -> None:
        self._timeline, self._scale, self._without = timeline, scale, without
        self._began: dict[Call, float] = {}
        self._ended: dict[Call, float] = {}
        self._now = dict.fromkeys(timeline.steps, timeline.start)
        self._next = dict.fromkeys(timeline.steps, 0)

    def run(self) -> float:
        steps = self._timeline.steps
        while left := [pe for pe in steps if self._next[pe] < len(steps[pe])]:
            if not any(self._advance(pe) for pe in left):  # clocks disagree: the earliest goes on
                self._take(min(left, key=lambda pe: steps[pe][self._next[pe]].end), 0.0)
        return max(self._now.values(), default=0.0) - self._timeline.start

    def _advance(self, pe: int) -> bool:
        """Take steps of a PE until one must wait for another PE. Return whether there was one."""
        steps, first = self._timeline.steps[pe], self._next[pe]
        while self._next[pe] < len(steps):
            step = steps[self._next[pe]]
            if step.call and step.opens:
                self._began.setdefault(step.call, self._now[pe])
            until = self._until(step)
            if until is None:
                break
            self._take(pe, until)
        return self._next[pe] > first

    def _take(self, pe: int, until: float) -> None:
        """Take a step, which ends no earlier than ``until``."""
        step = self._timeline.steps[pe][self._next[pe]]
        self._now[pe] = max(self._now[pe] + self._length(step), until)
        self._next[pe] += 1
        if step.call and step.closes:
            self._ended[step.call] = self._now[pe]

    def _until(self, step: Step) -> float | None:
        """When others let the step end; None: they have not come as far."""
        call = step.call
        if call is None or step.part == self._without:
            return 0.0
        if call in self._timeline.last:
            members = self._timeline.members[self._timeline.last[call]]
            if any(each not in self._began for each in members):
                return None
            came = max(self._began[each] for each in members)
            return came + max(0.0, step.end - max(step.begin, self._timeline.last[call].begin)) * self._of_meeting(step)
        write = self._timeline.writes.get(call)
        if write is None or not step.closes:
            return 0.0
        if call.end < write.end:  # a word is seen before the call that writes it returns
            began = self._began.get(write)
            return None if began is None else began + max(0.0, call.end - write.begin)
        ended = self._ended.get(write)
        return None if ended is None else ended + (call.end - write.end if call.begin < write.end else 0.0)

    def _of_meeting(self, step: Step) -> float:
        own = LIBRARY if step.call and step.call.name in OF_LIBRARY else COMMUNICATION
        return 0.0 if self._without == own else self._scale(step)

    def _length(self, step: Step) -> float:
        """The least time of a step: that of waits, and of meetings, is what others let them take."""
        if step.part == self._without and step.part != MEETING:
            return 0.0
        length = step.end - step.begin
        if step.call in self._timeline.last:
            if step.part != self._without:
                return 0.0
            last = self._timeline.last[step.call]
            return max(0.0, step.end - max(step.begin, last.begin)) * self._scale(step)
        write = self._timeline.writes.get(step.call) if step.call else None
        if write is not None and step.call is not None and step.call.begin < write.end:
            return 0.0
        return length * self._scale(step)


def _ends(calls: Iterable[Call], arrows: Iterable[Arrow]) -> dict[Call, Call]:
    """Return for each wait the write that ended it."""
    known: dict[tuple[int, int, int], list[Call]] = defaultdict(list)
    for call in calls:
        known[call.pe, call.track, round(1e3 * max(call.begin, call.end - 1e-3))].append(call)
    found = {}
    for arrow in arrows:
        waits = known[arrow.pe, arrow.track, round(1e3 * arrow.ended)]
        writes = known[arrow.source, arrow.source_track, round(1e3 * arrow.begun)]
        if waits and writes:
            found[max(waits)] = max(writes)  # the innermost
    return found


def unchanged(step: Step) -> float:
    return 1.0


def savings(timeline: Timeline) -> dict[str, float]:
    """Return for each part how much earlier the program would have ended if the part took no time."""
    whole = timeline.replay(unchanged)
    return {part: max(0.0, whole - timeline.replay(unchanged, part)) for part in PARTS}
