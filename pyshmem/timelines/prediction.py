"""How long the program of a timeline would take on another machine: with links, latency, cores or PEs of other numbers.

A put or a get of n bytes takes latency + n / rate, whose two numbers are fitted to the calls of the timeline; a meeting
does by the formulas of docs/scaling.md, with numbers fitted to the meetings. The replay does the rest. The error is what the
model leaves open: how far calls are from the fit, for those that the prediction changes, waits without an arrow, and for
more PEs how long the slowest one computes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from pyshmem.timelines.growing import grown
from pyshmem.timelines.replay import Step, Timeline, unchanged
from pyshmem.timelines.taxes import COMMUNICATION, COMPUTING, MEETING, OF_LIBRARY, Call

_DRAWS = 5  # of the times of further PEs
_FLAGS = 16  # members up to which a barrier is one exchange of flags


class Links(NamedTuple):
    """The time of a transfer is latency + bytes / rate. latency: us.  rate: bytes a us.  error: relative, of one call."""

    latency: float
    rate: float
    error: float


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


def fitted(points: Iterable[tuple[float, float, float]]) -> Links | None:
    """The line through (exchanges, bytes, us) that has the least relative errors; None without any point.

    Of calls of one size, all time is rate.
    """
    rows = [(exchanges / time, nbytes / time) for exchanges, nbytes, time in points if time > 0]
    if not rows:
        return None
    ones, squares = sum(each**2 for each, _ in rows), sum(each**2 for _, each in rows)
    times, products = sum(each for each, _ in rows), sum(each for _, each in rows)
    both = sum(exchange * size for exchange, size in rows)
    apart = ones * squares - both**2
    latency, slope = (0.0, products / squares) if squares else (times / ones if ones else 0.0, 0.0)
    if apart > 1e-9 * ones * squares:
        line = (squares * times - both * products) / apart, (ones * products - both * times) / apart
        if min(line) > 0:
            latency, slope = line
        elif line[1] <= 0:
            latency, slope = times / ones, 0.0
    errors = [(latency * exchange + slope * size - 1) ** 2 for exchange, size in rows]
    return Links(latency, 1 / slope if slope else math.inf, math.sqrt(sum(errors) / len(errors)))


def exchanges(pes: int) -> float:
    """Flags that a barrier of so many PEs passes one after the other: see docs/scaling.md."""
    return 0.0 if pes < 2 else 1.0 if pes <= _FLAGS else math.log2(pes)


def moved(call: Call, pes: int) -> float:
    """The bytes that a meeting of so many PEs passes through the busiest link: see docs/scaling.md."""
    name = call.name.rpartition(".")[2]
    if "reduce" in name:
        return 2 * (1 - 1 / pes) * call.nbytes
    if "collect" in name or "alltoall" in name or "all_gather" in name or "all_to_all" in name:
        return (pes - 1.0) * call.nbytes
    return float(call.nbytes)


class Model:
    """The links of a timeline: those of its puts and gets, and those of its meetings. n_pes: of its PEs."""

    def __init__(self, timeline: Timeline) -> None:
        self.n_pes = len(timeline.steps)
        calls = {each.call for own in timeline.steps.values() for each in own if each.call}
        self.transfers = fitted(
            (1.0, each.nbytes, each.end - each.begin) for each in calls if each.kind in ("put", "get") and each.nbytes
        )
        self.meetings = fitted(
            (exchanges(self.n_pes), moved(call, self.n_pes), call.end - max(call.begin, last.begin))
            for call, last in timeline.last.items()
            if call.name not in OF_LIBRARY
        )

    def scale(self, step: Step, machine: Machine) -> float:
        """How many times as long a step takes on another machine."""
        call = step.call
        if step.part == COMPUTING:
            return 1 / machine.compute_rate
        if step.part == MEETING and call and call.name not in OF_LIBRARY and self.meetings:
            pes = max(machine.pes or self.n_pes, 2)
            return _ratio(self.meetings, machine, (exchanges(self.n_pes), moved(call, self.n_pes)),
                          (exchanges(pes), moved(call, pes)))  # fmt: skip
        if step.part == COMMUNICATION and call and self.transfers:
            size = (1.0, float(call.nbytes)) if call.kind in ("put", "get") else (1.0, 0.0)
            return _ratio(self.transfers, machine, size, size)
        return 1.0


def _ratio(links: Links, machine: Machine, before: tuple[float, float], after: tuple[float, float]) -> float:
    """How many times as long it takes to exchange and move ``after`` there as ``before`` here."""
    latency = links.latency if machine.latency is None else machine.latency
    rate = links.rate if machine.link_rate is None else 1e3 * machine.link_rate
    here = before[0] * links.latency + before[1] / links.rate
    return (after[0] * latency + after[1] / rate) / here if here else 1.0


def predicted(timeline: Timeline, machine: Machine) -> Prediction:
    """Replay a timeline on another machine. Each PE does what it did; further PEs do as those of the timeline: see grown."""
    model, n_pes = Model(timeline), max(1, len(timeline.steps))
    links, steps = model.transfers, [each for own in timeline.steps.values() for each in own]

    def scale(step: Step) -> float:
        return model.scale(step, machine)

    changed = sum((each.end - each.begin) * abs(scale(each) - 1) for each in steps if each.part == COMMUNICATION)
    more = machine.pes is not None and machine.pes > n_pes
    times = [grown(timeline, machine.pes or 0, seed).replay(scale) for seed in range(_DRAWS if more else 1)]
    error = ((links.error * changed if links else 0.0) + timeline.unexplained()) / n_pes
    return Prediction(timeline.replay(unchanged), statistics.mean(times), error + statistics.pstdev(times), links)
