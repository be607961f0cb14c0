"""What a GPU did, as threads of a replay: the programs on each track of a multiprocessor, and the copies of each stream.

A timeline has the calls and marks of kernels, not when kernels begin and end. So kernels are busy while one of their
programs is in a call or a mark, or for shorter than _PAUSE in none. They begin to be busy as long after the last time, or,
where the host did something in between, after that; the last program ends it. All that is between calls is computing.

A copy that begins as the one before it on its stream ends has waited for that. Another one has waited for what it copies:
it begins as long after what came last before it, in proportion to computing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyshmem.timelines.flights import of_programs, under_way
from pyshmem.timelines.steps import BEGIN, BUSY, END, Moment, Step, Thread, moment
from pyshmem.timelines.taxes import COMMUNICATION, COMPUTING, Call, merged, moments, part_of
from pyshmem.timelines.tracks import COPIES_FROM

_PAUSE = 0.5  # us
_CLOSE = 3.0  # us between two copies that follow each other
_FLAG = 8  # bytes, at most, of a copy that a kernel waits for
_SEEN = 10.0  # us, at most, between the end of such a copy, by the clocks of streams, and that of the wait


class Busy(NamedTuple):
    """A time in which work of a GPU is under way, and the moment when it ends."""

    begin: float
    end: float
    ended: Moment


class Work:
    """The work of a PE's GPU. tracks: its calls. kernels: when they were busy."""

    def __init__(self, pe: int, calls: Sequence[Call]) -> None:
        self.pe = pe
        self.tracks: dict[int, list[Call]] = defaultdict(list)
        for call in sorted(calls, key=lambda each: (each.begin, -each.end)):
            self.tracks[call.track].append(call)
        programs = sorted((each.begin, each.end) for each in calls if each.track < COPIES_FROM)
        self.kernels = [Busy(begin, end, Moment(END, None, pe, number))
                        for number, (begin, end) in enumerate(merged(programs, _PAUSE))]  # fmt: skip
        self._begins = [each.begin for each in self.kernels]
        self.copies = sorted(each for each in calls if each.track >= COPIES_FROM)
        every = [*self.kernels, *(Busy(each.begin, each.end, moment(END, each)) for each in self.copies)]
        self._ends = sorted(every, key=lambda each: each.end)
        self._times = [each.end for each in self._ends]
        self._busy = merged(sorted((each.begin, each.end) for each in every), 0.0)

    def awaited(self, begin: float, end: float) -> Busy | None:
        """The work that ended last from begin to end, if the GPU has none at the end: what a host's step waited for."""
        place = bisect_right(self._times, end) - 1
        if place < 0 or self._times[place] <= begin:
            return None
        later = bisect_right(self._busy, (end, end)) - 1
        return None if self._busy[later][1] > end else self._ends[place]

    def threads(
        self, host: Sequence[Call], senders: dict[Call, Call], start: float
    ) -> Iterator[tuple[Thread, list[Step]]]:
        """Each thread and its steps. host: calls of the main thread. senders: which of them sent a copy. start: of all."""
        yield Thread(self.pe, BUSY), [*self._busy_times(host, start)]
        gaps: dict[Call, Step] = {}
        last: dict[int, float] = {}  # end of the copies of each stream
        ready: Call | None = None  # the last copy that has waited for what it copies
        for call in self.copies:
            gaps[call] = self._gap(call, last.get(call.track), senders.get(call), ready, start)
            last[call.track] = call.end
            if gaps[call].after:
                ready = call
        for track, calls in self.tracks.items():
            if track < COPIES_FROM:
                yield Thread(self.pe, track), [*self._programs(track, calls)]
            else:
                copies = ((gaps[each], Step(each.begin, each.end, COMMUNICATION, each, True, True)) for each in calls)
                yield Thread(self.pe, track), [step for pair in copies for step in pair]

    def _busy_times(self, host: Sequence[Call], start: float) -> Iterator[Step]:
        done = sorted([*((each.begin, BEGIN, each) for each in host if each.end > each.begin),
                       *((each.end, END, each) for each in host if each.end > each.begin)])  # fmt: skip
        times = [each[0] for each in done]
        tracks, launches = self._tracks_of_busy_times(), self._launches(host)
        last = start
        for number, (begin, end, ended) in enumerate(self.kernels):
            place = bisect_right(times, begin) - 1
            after: list[tuple[Moment, float]] = []
            if place >= 0 and (times[place] > last or number == 0):  # the host may have begun it
                after.append((moment(done[place][1], done[place][2]), begin - times[place]))
            elif launches:
                after += [(self.kernels[number - 1].ended, begin - last), (moment(BEGIN, launches[number]), 0.0)]
            yield Step(last, begin, COMPUTING, None, False, False, tuple(after), ended._replace(which=BEGIN))
            programs = tuple((ended._replace(track=track), 0.0) for track in tracks[number])
            yield Step(begin, end, COMPUTING, None, False, False, programs, ended)
            last = end

    def _launches(self, host: Sequence[Call]) -> list[Call]:
        """The operator that has launched the kernels of each busy time, if each has launched as many; else nothing."""
        operators: list[Call] = []
        for call in sorted(host, key=lambda each: (each.begin, -each.end)):
            if call.kind == "operator" and call.end > call.begin and (not operators or call.begin >= operators[-1].end):
                operators.append(call)
        each, rest = divmod(len(self.kernels), max(1, len(operators)))
        found = [call for call in operators for _ in range(each)]
        fits = all(call.begin <= busy.begin for call, busy in zip(found, self.kernels, strict=False))
        return found if fits and not rest else []

    def _tracks_of_busy_times(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.kernels]
        for track, calls in self.tracks.items():
            if track < COPIES_FROM:
                for number in {self._number(each) for each in calls}:
                    found[number].append(track)
        return found

    def _number(self, call: Call) -> int:
        """Of the time in which kernels are busy that has the call."""
        return bisect_right(self._begins, call.begin) - 1

    def _programs(self, track: int, calls: Sequence[Call]) -> Iterator[Step]:
        flights = [*of_programs(calls)]
        by_number: dict[int, list[Call]] = defaultdict(list)
        for each in calls:
            by_number[self._number(each)].append(each)
        for number, own in by_number.items():
            busy = self.kernels[number]
            first, last = own[0].begin, max(each.end for each in own)
            began = busy.ended._replace(which=BEGIN), first - busy.begin
            steps = [Step(busy.begin, first, COMPUTING, None, False, False, (began,))]
            for begin, end, stack in moments(own, first, last):
                call = stack[-1] if stack else None
                part = COMMUNICATION if under_way(flights, begin, end) else part_of(call, False)
                opens, closes = bool(call and begin == call.begin), bool(call and end == call.end)
                steps.append(Step(begin, end, part, call, opens, closes))
            steps[-1] = steps[-1]._replace(reaches=busy.ended._replace(track=track))
            yield from steps

    def _gap(self, call: Call, before: float | None, sender: Call | None, ready: Call | None, start: float) -> Step:
        """What lies before a copy. before: the end of the one before it on its stream."""
        gap = Step(start if before is None else before, call.begin, COMPUTING, None, False, False)
        if before is not None and call.begin - before < _CLOSE:
            return gap
        known = [] if ready is None else [(ready.begin, moment(BEGIN, ready))]
        if sender and sender.begin <= call.begin:
            known.append((sender.begin, moment(BEGIN, sender)))
        place = bisect_right(self.kernels, call.begin, key=lambda each: each.end) - 1
        if place >= 0:
            known.append((self.kernels[place].end, self.kernels[place].ended))
        if not known:
            return gap
        time, which = max(known, key=lambda each: each[0])
        return gap._replace(after=((which, call.begin - time),))


def flags(calls: Sequence[Call], waits: Sequence[Call]) -> dict[Call, Call]:
    """For waits of kernels that no arrow ends, the copy of a few bytes to this PE that has ended them."""
    found: dict[Call, Call] = {}
    copies: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        if call.kind == "copy" and call.nbytes <= _FLAG and call.to != call.pe:
            copies[call.to].append(call)
    for every in copies.values():
        every.sort(key=lambda each: each.end)
    for wait in waits:
        every = copies.get(wait.pe, [])
        first, last = (bisect_right(every, wait.end + each, key=lambda copy: copy.end) for each in (-_SEEN, _SEEN))
        if wait.end - wait.begin > _SEEN and first < last:
            found[wait] = min(every[first:last], key=lambda each: abs(each.end - wait.end))
    return found
