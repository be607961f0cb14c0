"""Replays a timeline without a part of its time: how long the program would have taken if the part took no time.

Threads are the main thread of each PE, and the tracks of its GPU. What a thread does, one thing after the other, keeps its
order. A wait ends as long after the write that ended it as it did; a meeting goes on when its last member has come. All else
takes its own time. With all parts the replay takes as long as the timeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from pyshmem.timelines.on_gpu import Work, flags
from pyshmem.timelines.runs import Runs
from pyshmem.timelines.steps import HOST, Step, Thread
from pyshmem.timelines.taxes import (
    GPU,
    LAUNCHES,
    LIBRARY,
    MEETING,
    PARTS,
    WAITING,
    Arrow,
    Call,
    is_of_gpu,
    last_to_come,
    main_thread,
    moments,
    part_of,
)


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
        part = MEETING if call and call.kind == "meet" and call in self.last else part_of(call, between)
        if work and (call in self._sent or (call and stack[0].kind == "operator" and call.kind != "operator")):
            part = LIBRARY  # it enqueues
        step = Step(begin, end, part, call, bool(call and begin == call.begin), bool(call and end == call.end))
        awaited = work.awaited(begin, end) if work and part not in (MEETING, WAITING) else None
        if awaited is None:
            return step
        part = LAUNCHES if part == LAUNCHES else LIBRARY
        return step._replace(part=part, after=((awaited.ended, end - awaited.end),))

    def replay(self, without: str = "") -> float:
        """Return the time of the program in microseconds, if the part ``without`` took no time."""
        return self.runs().time(without)

    def runs(self) -> Runs:
        """What replays of this timeline have in common."""
        return Runs(self.steps, self.start, self.last, self.members, self.writes)


_Place = tuple[int, int, int]  # PE, track and nanosecond of the begin or end of a call, as arrows name it


def _known(calls: Iterable[Call], ends: bool, named: set[_Place]) -> dict[_Place, list[Call]]:
    """The calls whose begins or ends are named, by them."""
    known: dict[_Place, list[Call]] = defaultdict(list)
    if not named:
        return known
    for call in calls:
        time = max(call.begin, call.end - 1e-3) if ends else call.begin
        place = call.pe, call.track, round(1e3 * time)
        if place in named:
            known[place].append(call)
    return known


def _joined(calls: Iterable[Call], arrows: Iterable[Arrow], sends: bool) -> Iterator[tuple[list[Call], list[Call]]]:
    """The calls at the head and at the tail of each arrow of a kind. Arrows that send go from begin to begin."""
    places: list[tuple[_Place, _Place]] = [
        ((each.pe, each.track, round(1e3 * each.ended)), (each.source, each.source_track, round(1e3 * each.begun)))
        for each in arrows if each.sends == sends
    ]  # fmt: skip
    known = _known(calls, not sends, {place for pair in places for place in pair})
    return ((known[head], known[tail]) for head, tail in places if head in known and tail in known)


def _ends(calls: Iterable[Call], arrows: Iterable[Arrow]) -> dict[Call, Call]:
    """Return for each wait the write that ended it: the innermost calls there."""
    return {max(waits): max(writes) for waits, writes in _joined(calls, arrows, sends=False)}


def _senders(calls: Iterable[Call], arrows: Iterable[Arrow]) -> dict[Call, Call]:
    """Return for each copy the call that has sent it: the innermost."""
    return {
        copies[0]: min(senders, key=lambda each: each.end) for copies, senders in _joined(calls, arrows, sends=True)
    }


def _after_work(calls: list[Call], work: Work) -> Iterator[Call]:
    """The calls; a meeting begins when this PE's GPU has done its work, which it waits for. On streams nobody meets."""
    calls = sorted(calls, key=lambda each: (each.begin, -each.end))
    for call, following in zip_longest(calls, calls[1:]):
        if call.kind == "meet" and call.name.endswith("_on_stream"):
            call = call._replace(kind="call")
        awaited = work.awaited(call.begin, call.end) if call.kind == "meet" else None
        inner = following is not None and following.begin < call.end
        yield call._replace(begin=awaited.end) if awaited and not inner else call


def savings(timeline: Timeline) -> dict[str, float]:
    """Return for each part how much earlier the program would have ended if the part took no time.

    Waits for the GPU have no entry: they end with its work, which has parts of its own.
    """
    runs = timeline.runs()
    whole = runs.time()
    return {part: max(0.0, whole - runs.time(part)) for part in PARTS if part != GPU}
