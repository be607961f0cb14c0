"""Replays a timeline with other times: how long the program would have taken if a part of it took another time.

Threads are the main thread of each PE, and the tracks of its GPU. What a thread does, one thing after the other, keeps its
order. A wait ends as long after the write that ended it as it did; a meeting goes on when its last member has come. All else
takes its time, times a factor. Without changes the replay takes as long as the timeline.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest

from pyshmem.timelines.flights import CALLS, Flight
from pyshmem.timelines.on_gpu import Work, flags, is_of_gpu
from pyshmem.timelines.steps import BEGIN, END, HOST, Moment, Step, Thread, moment
from pyshmem.timelines.taxes import (
    COMMUNICATION,
    LAUNCHES,
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
Window = tuple[float, float]  # us


class Timeline:
    """The steps of all threads, and what each waits for. pes: those that have made calls."""

    def __init__(self, calls: list[Call], arrows: Iterable[Arrow]) -> None:
        self.start = min((each.begin for each in calls), default=0.0)
        self.end = max((each.end for each in calls), default=0.0)
        self.pes = sorted({each.pe for each in calls})
        arrows = list(arrows)
        host = {pe: main_thread([each for each in calls if each.pe == pe]) for pe in self.pes}
        on_gpu = [each for each in calls if is_of_gpu(each)]
        works = {pe: Work(pe, own) for pe in self.pes if (own := [each for each in on_gpu if each.pe == pe])}
        senders = _senders(calls, arrows)
        self._sent = {*senders.values()}
        self.steps: dict[Thread, list[Step]] = {}
        for pe, own in host.items():
            work = works.get(pe)
            if work:
                host[pe] = [*_after_work(own, work)]
        self.last = last_to_come([*(each for own in host.values() for each in own), *on_gpu])
        self.members: dict[Call, list[Call]] = defaultdict(list)  # of a meeting, by the last to come
        for call, last in self.last.items():
            self.members[last].append(call)
        for pe, own in host.items():
            work = works.get(pe)
            self.steps[Thread(pe, HOST)] = self._of_host(own, work)
            if work:
                self.steps.update(work.threads(own, senders, self.start))
        done = {each.call for steps in self.steps.values() for each in steps}
        self.writes = {wait: write for wait, write in _ends(calls, arrows).items() if wait in done and write in done}
        waits = [each for each in on_gpu if each.kind == "wait" and each in done and each not in self.writes]
        self.writes |= flags(on_gpu, waits)

    def _of_host(self, calls: list[Call], work: Work | None) -> list[Step]:
        """The steps of a main thread. With a GPU it has an end of its own, and computes nothing."""
        kernels = [each for each in calls if each.kind == "kernel"]
        gaps = (
            min((each.end for each in kernels), default=self.end),
            max((each.begin for each in kernels), default=0.0),
        )
        end = self.end
        if work:
            gaps, end = (self.start, self.end), max((each.end for each in calls), default=self.start)
        return [
            self._step(begin, end, list(stack), gaps, work) for begin, end, stack in moments(calls, self.start, end)
        ]

    def _step(self, begin: float, end: float, stack: list[Call], gaps: tuple[float, float], work: Work | None) -> Step:
        call = stack[-1] if stack else None
        between = gaps[0] <= begin and end <= gaps[1]
        part = MEETING if call in self.last else part_of(call, between)
        if work and (call in self._sent or (call and stack[0].kind == "operator" and call.kind != "operator")):
            part = LIBRARY  # it enqueues
        moves = part == COMMUNICATION and call and call.kind in ("put", "get") and call.nbytes
        flight = Flight(call.begin, call.end, call.nbytes, call.nbytes) if call and moves else None
        step = Step(begin, end, part, call, bool(call and begin == call.begin), bool(call and end == call.end),
                    route=CALLS, flight=flight)  # fmt: skip
        awaited = work.awaited(begin, end) if work and part not in (MEETING, WAITING) else None
        if awaited is None:
            return step
        part = LAUNCHES if part == LAUNCHES else LIBRARY
        return step._replace(part=part, flight=None, after=((awaited.ended, end - awaited.end),))

    def unexplained(self, steps: Iterable[Step]) -> float:
        """The time of waits without an arrow, which keep their length."""
        return sum(each.end - each.begin for each in steps if each.part == WAITING and each.call not in self.writes)

    def replay(self, scale: Scale, without: str = "", window: Window | None = None) -> float:
        """Return the time of the program if each step takes ``scale`` times as long. without: a part that takes no time.

        window: return the time between two times instead: between the ends of what was the last to end until each of them.
        """
        return _Replay(self, scale, without, window).run()


class _Replay:
    def __init__(self, timeline: Timeline, scale: Scale, without: str, window: Window | None) -> None:
        self._timeline, self._scale, self._without = timeline, scale, without
        self._times: dict[Moment, float] = {}
        self._blocked: dict[Moment, list[Thread]] = defaultdict(list)
        self._ready = deque(timeline.steps)
        self._now = dict.fromkeys(timeline.steps, timeline.start)
        self._next = dict.fromkeys(timeline.steps, 0)
        self._window = window or ()
        # of what had ended in the timeline by the begin and by the end of the window, the last: its ends there and here
        self._last = [(timeline.start, timeline.start)] * 2

    def run(self) -> float:
        steps = self._timeline.steps
        while True:
            while self._ready:
                self._advance(self._ready.popleft())
            left = [each for each in steps if self._next[each] < len(steps[each])]
            if not left:
                (_, begin), (_, end) = self._last
                return end - begin if self._window else max(self._now.values(), default=0.0) - self._timeline.start
            # clocks disagree: the earliest goes on
            first = min(left, key=lambda each: steps[each][self._next[each]].end)
            step = steps[first][self._next[first]]
            for threads in self._blocked.values():
                if first in threads:
                    threads.remove(first)
            self._take(first, self._now[first] + step.end - step.begin)
            self._ready.append(first)

    def _advance(self, thread: Thread) -> None:
        """Take steps of a thread until one must wait for another thread."""
        steps = self._timeline.steps[thread]
        while self._next[thread] < len(steps):
            step = steps[self._next[thread]]
            if step.call and step.opens:
                self._reach(moment(BEGIN, step.call), self._now[thread])
            until = self._until(step)
            if isinstance(until, Moment):
                self._blocked[until].append(thread)
                return
            self._take(thread, max(self._now[thread] + self._length(step), until))

    def _take(self, thread: Thread, end: float) -> None:
        step = self._timeline.steps[thread][self._next[thread]]
        self._now[thread] = end
        self._next[thread] += 1
        for which, time in enumerate(self._window):
            if step.end <= time:
                self._last[which] = max(self._last[which], (step.end, end))
        if step.call and step.closes:
            self._reach(moment(END, step.call), end)
        if step.reaches:
            self._reach(step.reaches, end)

    def _reach(self, which: Moment, time: float) -> None:
        self._times.setdefault(which, time)
        self._ready.extend(self._blocked.pop(which, ()))

    def _until(self, step: Step) -> float | Moment:
        """When others let the step end; the first moment that they have not reached."""
        call = step.call
        if step.after:
            factor = 0.0 if step.part == self._without else self._scale(step)
            missing = next((which for which, _ in step.after if which not in self._times), None)
            return missing or max(self._times[which] + lag * factor for which, lag in step.after)
        if call is None or step.part == self._without:
            return 0.0
        if call in self._timeline.last:
            came = [moment(BEGIN, each) for each in self._timeline.members[self._timeline.last[call]]]
            missing = next((each for each in came if each not in self._times), None)
            if missing:
                return missing
            rest = max(0.0, step.end - max(step.begin, self._timeline.last[call].begin))
            return max(self._times[each] for each in came) + rest * self._of_meeting(step)
        write = self._timeline.writes.get(call)
        if write is None or not step.closes:
            return 0.0
        if call.end < write.end:  # a word is seen before the call that writes it returns
            which, lag = moment(BEGIN, write), call.end - write.begin
        else:
            which, lag = moment(END, write), call.end - write.end if call.begin < write.end else 0.0
        return self._times[which] + lag if which in self._times else which

    def _of_meeting(self, step: Step) -> float:
        own = LIBRARY if step.call and step.call.name in OF_LIBRARY else COMMUNICATION
        return 0.0 if self._without == own else self._scale(step)

    def _length(self, step: Step) -> float:
        """The least time of a step: that of waits, and of meetings, is what others let them take."""
        if step.after or (step.part == self._without and step.part != MEETING):
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


def _known(calls: Iterable[Call], ends: bool) -> dict[tuple[int, int, int], list[Call]]:
    """The calls by PE, track and nanosecond of their begin or end, as arrows name them."""
    known: dict[tuple[int, int, int], list[Call]] = defaultdict(list)
    for call in calls:
        time = max(call.begin, call.end - 1e-3) if ends else call.begin
        known[call.pe, call.track, round(1e3 * time)].append(call)
    return known


def _ends(calls: Iterable[Call], arrows: Iterable[Arrow]) -> dict[Call, Call]:
    """Return for each wait the write that ended it."""
    known, found = _known(calls, ends=True), {}
    for arrow in arrows:
        waits = known.get((arrow.pe, arrow.track, round(1e3 * arrow.ended)))
        writes = known.get((arrow.source, arrow.source_track, round(1e3 * arrow.begun)))
        if waits and writes and not arrow.sends:
            found[max(waits)] = max(writes)  # the innermost
    return found


def _senders(calls: Iterable[Call], arrows: Iterable[Arrow]) -> dict[Call, Call]:
    """Return for each copy the call that has sent it."""
    known, found = _known(calls, ends=False), {}
    for arrow in arrows:
        copies = known.get((arrow.pe, arrow.track, round(1e3 * arrow.ended)))
        senders = known.get((arrow.source, arrow.source_track, round(1e3 * arrow.begun)))
        if copies and senders and arrow.sends:
            found[copies[0]] = min(senders, key=lambda each: each.end)  # the innermost
    return found


def _after_work(calls: list[Call], work: Work) -> Iterator[Call]:
    """The calls; a meeting begins when this PE's GPU has done its work, which it waits for. On streams nobody meets."""
    calls = sorted(calls, key=lambda each: (each.begin, -each.end))
    for call, following in zip_longest(calls, calls[1:]):
        if call.kind == "meet" and call.name.endswith("_on_stream"):
            call = call._replace(kind="call")
        awaited = work.awaited(call.begin, call.end) if call.kind == "meet" else None
        inner = following is not None and following.begin < call.end
        yield call._replace(begin=awaited.end) if awaited and not inner else call


def unchanged(step: Step) -> float:
    return 1.0


def savings(timeline: Timeline) -> dict[str, float]:
    """Return for each part how much earlier the program would have ended if the part took no time."""
    whole = timeline.replay(unchanged)
    return {part: max(0.0, whole - timeline.replay(unchanged, part)) for part in PARTS}
