"""A timeline with more PEs than were recorded. What the recorded PEs did, the further ones do in the same order, in copies
of the whole: a copy's PEs send to each other, and all meet where all have met.

PEs never compute equally long, and the more there are, the longer the slowest takes. So a PE computes as long as the
recorded ones did there in the mean, times how far one of them was from the mean at some place.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random

from pyshmem.timelines.replay import Step, Timeline
from pyshmem.timelines.taxes import COMPUTING, Call


def grown(timeline: Timeline, pes: int, seed: int) -> Timeline:
    """The timeline with ``pes`` PEs, if that is more; the same one otherwise. seed: of the times of computing."""
    recorded = sorted(timeline.steps)
    count, free = len(recorded), max(recorded, default=-1) + 1
    if not 0 < count < pes:
        return timeline
    found, chance = copy.copy(timeline), Random(seed)
    found.steps, found.last, found.writes = {}, dict(timeline.last), dict(timeline.writes)
    found.members = defaultdict(list, {last: [*every] for last, every in timeline.members.items()})
    means, ratios = _far_from_the_mean(timeline)
    for pe in recorded:
        found.steps[pe] = [*_drawn(timeline.steps[pe], pe, means, ratios.get(pe, ()), chance)]
    for number in range(count, pes):
        first = number // count * count  # of the PEs of this copy
        there = {pe: free + first - count + place for place, pe in enumerate(recorded[: pes - first])}
        pe = recorded[number % count]
        found.steps[there[pe]] = [*_drawn(timeline.steps[pe], there[pe], means, ratios.get(pe, ()), chance)]
        _join(found, timeline, pe, there)
    return found


def _join(found: Timeline, timeline: Timeline, pe: int, there: dict[int, int]) -> None:
    """Let the copy of a PE take part in meetings, and wait for writes. there: the PEs of its copy of the whole."""

    def copied(call: Call) -> Call:
        return call._replace(pe=there.get(call.pe, call.pe))

    for call, last in timeline.last.items():
        if call.pe == pe:
            members = timeline.members[last]
            apart = len(members) < len(timeline.steps) and all(each.pe in there for each in members)
            own = copied(last) if apart else last
            found.last[copied(call)] = own
            found.members[own].append(copied(call))
    for wait, write in timeline.writes.items():
        if wait.pe == pe:
            found.writes[copied(wait)] = copied(write)


def _far_from_the_mean(timeline: Timeline) -> tuple[dict[int, float], dict[int, list[float]]]:
    """(the mean length of computing at each place, by PE how many times as long the PE computed at each place).

    Nothing if the PEs have not made the same calls.
    """
    lengths = [dict(_lengths(steps)) for steps in timeline.steps.values()]
    names = [[step.call.name for step in steps if step.call and step.opens] for steps in timeline.steps.values()]
    if len(names) < 2 or any(each != names[0] for each in names):
        return {}, {}
    common = set(lengths[0]).intersection(*lengths[1:])
    means = {place: statistics.mean(each[place] for each in lengths) for place in common}
    wider, found = (
        math.sqrt(len(names) / (len(names) - 1)),
        {},
    )  # a few PEs are nearer to their mean than to that of many
    for pe, own in zip(timeline.steps, lengths, strict=True):
        ratios = [own[place] / mean for place, mean in means.items() if mean]
        usual = statistics.mean(ratios) if ratios else 1.0
        found[pe] = [max(0.0, usual + wider * (each - usual)) for each in ratios]
    return means, found


def _computes(step: Step) -> bool:
    return step.part == COMPUTING and not step.call


def _lengths(steps: Sequence[Step]) -> Iterator[tuple[int, float]]:
    """(place, length) of computing between calls. place: the calls that have begun before."""
    place = 0
    for step in steps:
        place += bool(step.call and step.opens)
        if _computes(step):
            yield place, step.end - step.begin


def _drawn(
    steps: Sequence[Step], pe: int, means: dict[int, float], ratios: Sequence[float], chance: Random
) -> Iterator[Step]:
    place = 0
    for step in steps:
        place += bool(step.call and step.opens)
        if _computes(step) and ratios and place in means:
            step = step._replace(end=step.begin + means[place] * chance.choice(ratios))
        yield step._replace(call=step.call._replace(pe=pe)) if step.call else step
