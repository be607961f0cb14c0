"""How long the program of a timeline would take on another machine: with links, latency, cores or PEs of other numbers.

A put or a get of n bytes takes latency + n / rate, whose two numbers are fitted to the calls of the timeline; a meeting
grows as docs/scaling.md says. The replay does the rest. The error is what the model leaves open: how far calls are from the
fit, for those that the prediction changes, and waits without an arrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from pyshmem.timelines.replay import Step, Timeline, unchanged
from pyshmem.timelines.taxes import COMMUNICATION, COMPUTING, MEETING, Call

_FLAGS = 16  # members up to which a barrier is one exchange of flags


class Links(NamedTuple):
    """The time of a transfer is latency + bytes / rate. latency: us.  rate: bytes a us.  error: relative, of one call."""

    latency: float
    rate: float
    error: float

    def time(self, nbytes: float) -> float:
        return self.latency + nbytes / self.rate


class Machine(NamedTuple):
    """What differs. link_rate: GB/s.  latency: us.  compute_rate: how many times as fast.  None: as in the timeline."""

    link_rate: float | None = None
    latency: float | None = None
    compute_rate: float = 1.0
    pes: int | None = None


class Prediction(NamedTuple):
    """Microseconds: as recorded, as predicted, and how much that may be wrong."""

    recorded: float
    time: float
    error: float
    links: Links | None


def fitted(calls: Iterable[Call]) -> Links | None:
    """The line through the times of puts and gets that has the least relative errors; None without any.

    Of calls of one size, all time is rate.
    """
    points = [(float(each.nbytes), each.end - each.begin) for each in calls
              if each.kind in ("put", "get") and each.nbytes and each.end > each.begin]  # fmt: skip
    if not points:
        return None
    ones = sum(1 / time**2 for _, time in points)
    sizes = sum(size / time**2 for size, time in points)
    squares = sum((size / time) ** 2 for size, time in points)
    times, products = sum(1 / time for _, time in points), sum(size / time for size, time in points)
    apart = ones * squares - sizes**2
    slope, latency = products / squares, 0.0
    if apart > 1e-9 * ones * squares:
        slope, latency = (ones * products - sizes * times) / apart, (squares * times - sizes * products) / apart
    if latency < 0:
        slope, latency = products / squares, 0.0
    if slope <= 0:
        slope, latency = 0.0, times / ones
    rate = 1 / slope if slope else math.inf
    errors = [((latency + size * slope - time) / time) ** 2 for size, time in points]
    return Links(latency, rate, math.sqrt(sum(errors) / len(errors)))


def exchanges(pes: int) -> float:
    """Flags that a barrier of so many PEs passes one after the other: see docs/scaling.md."""
    return 0.0 if pes < 2 else 1.0 if pes <= _FLAGS else math.log2(pes)


def growth(call: Call, recorded: int, pes: int) -> float:
    """How many times as long the communication of a meeting takes with ``pes`` PEs: see docs/scaling.md."""
    name = call.name.rpartition(".")[2]
    if recorded < 2 or pes < 2:
        return 1.0
    if "reduce" in name:
        return (1 - 1 / pes) / (1 - 1 / recorded)
    if "collect" in name or "alltoall" in name or "all_gather" in name or "all_to_all" in name:
        return (pes - 1) / (recorded - 1)
    return exchanges(pes) / exchanges(recorded)


def predicted(timeline: Timeline, machine: Machine) -> Prediction:
    """Replay a timeline on another machine. Each PE does what it did; further PEs do as those of the timeline."""
    steps = [each for own in timeline.steps.values() for each in own]
    links, n_pes = fitted(dict.fromkeys(each.call for each in steps if each.call)), len(timeline.steps)
    other = links
    if links:
        rate = links.rate if machine.link_rate is None else 1e3 * machine.link_rate
        other = Links(links.latency if machine.latency is None else machine.latency, rate, links.error)

    def scale(step: Step) -> float:
        factor = 1.0
        if step.part == COMPUTING:
            return 1 / machine.compute_rate
        if step.part in (COMMUNICATION, MEETING) and step.call and links and other:
            if step.call.kind in ("put", "get", "meet") and step.call.nbytes:
                factor = other.time(step.call.nbytes) / max(links.time(step.call.nbytes), 1e-12)
            elif links.latency:
                factor = other.latency / links.latency
        if step.part == MEETING and step.call and machine.pes:
            factor *= growth(step.call, n_pes, machine.pes)
        return factor

    moved = sum((each.end - each.begin) * abs(scale(each) - 1) for each in steps if each.part == COMMUNICATION)
    time = timeline.replay(scale)
    error = (links.error * moved / max(1, n_pes) if links else 0.0) + timeline.unexplained() / max(1, n_pes)
    return Prediction(timeline.replay(unchanged), time, error, links)
