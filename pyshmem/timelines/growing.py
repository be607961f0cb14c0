"""A timeline with more PEs than were recorded. What the recorded PEs did, the further ones do in the same order, in copies
of the whole: a copy's PEs send to each other, and all meet where all have met.

PEs never compute equally long, and the more there are, the longer the slowest takes. So a PE computes as long as the
recorded ones did there in the mean, times how far one of them was from the mean at some place between the same calls.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random

from pyshmem.timelines.replay import Timeline
from pyshmem.timelines.steps import HOST, Moment, Step
from pyshmem.timelines.taxes import COMPUTING, Call


def grown(timeline: Timeline, pes: int, seed: int) -> Timeline:
    """The timeline with ``pes`` PEs, if that is more; the same one otherwise. seed: of the times of computing."""
    recorded = timeline.pes
    count, free = len(recorded), max(recorded, default=-1) + 1
    if not 0 < count < pes:
        return timeline
    found, chance = copy.copy(timeline), Random(seed)
    found.steps, found.last, found.writes = {}, dict(timeline.last), dict(timeline.writes)
    found.members = defaultdict(list, {last: [*every] for last, every in timeline.members.items()})
    found.pes = [*recorded, *range(free, free + pes - count)]
    usual = _Computing(timeline)
    for number in range(pes):
        first = number // count * count  # of the PEs of this copy
        there = {pe: found.pes[first + place] for place, pe in enumerate(recorded[: pes - first])}
        pe = recorded[number % count]
        for thread, steps in timeline.steps.items():
            if thread.pe == pe:
                own = usual.drawn(steps, pe, chance) if thread.track == HOST else steps
                found.steps[thread._replace(pe=there[pe])] = [_copied(each, there) for each in own]
        if number >= count:
            _join(found, timeline, pe, there)
    return found


def _copied(step: Step, there: dict[int, int]) -> Step:
    """The step of the copy of a PE. there: the PEs of its copy of the whole."""

    def call_of(call: Call | None) -> Call | None:
        return call and call._replace(pe=there.get(call.pe, call.pe))

    def moved(moment: Moment) -> Moment:
        return moment._replace(call=call_of(moment.call), pe=there.get(moment.pe, moment.pe))

    after = tuple((moved(moment), lag) for moment, lag in step.after)
    return step._replace(call=call_of(step.call), after=after, reaches=step.reaches and moved(step.reaches))


def _join(found: Timeline, timeline: Timeline, pe: int, there: dict[int, int]) -> None:
    """Let the copy of a PE take part in meetings, and wait for writes. there: the PEs of its copy of the whole."""

    def copied(call: Call) -> Call:
        return call._replace(pe=there.get(call.pe, call.pe))

    for call, last in timeline.last.items():
        if call.pe == pe:
            members = timeline.members[last]
            apart = len(members) < len(timeline.pes) and all(each.pe in there for each in members)
            own = copied(last) if apart else last
            found.last[copied(call)] = own
            found.members[own].append(copied(call))
    for wait, write in timeline.writes.items():
        if wait.pe == pe:
            found.writes[copied(wait)] = copied(write)


class _Computing:
    """How long PEs compute between calls: the mean of each place, and by PE and the calls around how far from it.

    Nothing if the PEs have not made the same calls.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._means: dict[int, float] = {}
        self._ratios: dict[tuple[int, Around], list[float]] = defaultdict(list)
        host = {thread.pe: steps for thread, steps in timeline.steps.items() if thread.track == HOST}
        names = [[step.call.name for step in steps if step.call and step.opens] for steps in host.values()]
        if len(names) < 2 or any(each != names[0] for each in names):
            return
        lengths = {pe: {place: (around, each.end - each.begin) for place, around, each in _places(steps) if _computes(each)}
                   for pe, steps in host.items()}  # fmt: skip
        for place in set.intersection(*map(set, lengths.values())):
            self._means[place] = statistics.mean(own[place][1] for own in lengths.values())
        wider = math.sqrt(len(names) / (len(names) - 1))  # a few PEs are nearer to their mean than to that of many
        for pe, own in lengths.items():
            for place, mean in self._means.items():
                around, length = own[place]
                if mean:
                    self._ratios[pe, around].append(length / mean)
        for key, ratios in self._ratios.items():
            usual = statistics.mean(ratios)
            self._ratios[key] = [max(0.0, usual + wider * (each - usual)) for each in ratios]

    def drawn(self, steps: Sequence[Step], like: int, chance: Random) -> Iterator[Step]:
        """The steps of PE ``like`` as those of another one, which computes for times of its own."""
        for place, around, step in _places(steps):
            ratios = self._ratios.get((like, around))
            if _computes(step) and ratios and place in self._means:
                step = step._replace(end=step.begin + self._means[place] * chance.choice(ratios))
            yield step


Around = tuple[str, str]  # the names of the call before and the one behind


def _computes(step: Step) -> bool:
    return step.part == COMPUTING and not step.call


def _places(steps: Sequence[Step]) -> Iterator[tuple[int, Around, Step]]:
    """(the calls that have begun before, the names around, the step) of each step."""
    names = ["", *(step.call.name for step in steps if step.call and step.opens), ""]
    place = 0
    for step in steps:
        place += bool(step.call and step.opens)
        yield place, (names[place], names[place + 1]), step
