"""How long the program of a timeline would take on another machine: with links, latency, cores or PEs of other numbers.

A put or a get of n bytes takes latency + n / rate, whose two numbers are fitted to the calls of the timeline; a meeting
does by the formulas of docs/scaling.md, with numbers fitted to the meetings. The replay does the rest. The error is what the
model leaves open: how far calls are from the fit, for those that the prediction changes, waits without an arrow, for
more PEs how long the slowest one computes, and for another number of GPUs what predictions of runs have missed.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from pyshmem.timelines.flights import CALLS, KERNELS, ROUTES, leaves, signals
from pyshmem.timelines.growing import grown
from pyshmem.timelines.replay import Timeline
from pyshmem.timelines.runs import Scale, Window, unchanged
from pyshmem.timelines.steps import HOST, Step
from pyshmem.timelines.taxes import COMMUNICATION, COMPUTING, MEETING, OF_LIBRARY, Call

Rates = dict[str, float]
_OTHER_PES = (
    0.15  # of the time of GPUs: 13 of 14 predictions of another number of them are within it, see docs/timelines.md
)
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
    """Microseconds: as recorded, as predicted, and how much that may be wrong. links: of each route.

    sent: bytes that a PE has sent to others, or got from them, as far as slices show it.
    """

    recorded: float
    time: float
    error: float
    links: dict[str, Links]
    sent: float


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
    """The links of a timeline, by route, and those of its meetings."""

    def __init__(self, timeline: Timeline) -> None:
        self._here = len(timeline.pes)
        self._timeline = timeline
        steps = [each for own in timeline.steps.values() for each in own if each.part == COMMUNICATION]
        moved_by = [each.call for each in steps if each.call and each.opens and leaves(each.call)]
        self.sent = sum(each.nbytes for each in moved_by) / max(1, self._here)  # bytes, by a PE, as far as slices show
        self.links: dict[str, Links] = {}
        for route in ROUTES:
            flights = {each.flight for each in steps if each.route == route and each.flight}
            times = [
                each.end - each.begin for each in steps if each.route == route and not each.flight and _signals(each)
            ]
            alone = 0.0 if route == KERNELS else 1.0
            links = fitted((alone, each.passing, each.end - each.begin) for each in flights)
            if route == KERNELS and (links or times):
                links = (links or Links(0.0, math.inf, 0.0))._replace(
                    latency=statistics.median(times) if times else 0.0
                )
            if links:
                self.links[route] = links
        self.meetings = fitted(
            (exchanges(self._here), moved(call, self._here), call.end - max(call.begin, last.begin))
            for call, last in timeline.last.items()
            if call.name not in OF_LIBRARY
        )

    def scale(self, machine: Machine, best: Rates | None = None) -> Scale:
        """How many times as long each step takes on another machine. best: the rates that links here are known to reach."""
        here, there = self._here, max(machine.pes or self._here, 2)
        more = spread(self._timeline, there) / spread(self._timeline, here)

        def scale(step: Step) -> float:
            call = step.call
            if step.part == COMPUTING:
                return 1 / machine.compute_rate
            if step.part == MEETING and call and call.name not in OF_LIBRARY and self.meetings:
                return _ratio(self.meetings, machine, (exchanges(here), moved(call, here)),
                              (exchanges(there), moved(call, there)))  # fmt: skip
            links = self.links.get(step.route)
            if step.part != COMMUNICATION or links is None or not (step.flight or _signals(step)):
                return 1.0
            alone = 0.0 if step.flight and step.route == KERNELS else 1.0
            passing = step.flight.passing if step.flight else 0.0
            return _ratio(links, machine, (alone, passing), (alone, passing if step.route == CALLS else passing * more),
                          (best or {}).get(step.route, 0.0))  # fmt: skip

        return scale

    def error_of(self, step: Step, factor: float) -> float:
        """How far a step may be from its fit, in microseconds."""
        links = self.links.get(step.route) if step.part == COMMUNICATION else None
        return links.error * (step.end - step.begin) * abs(factor - 1) if links else 0.0


def spread(timeline: Timeline, pes: int) -> float:
    """How much more a GPU sends the more PEs there are, by the names of the timeline's operators: what it has to each of the
    others if they gather, else to each its part. Without operators as much as before."""
    names = {step.call.name.rpartition(".")[2] for thread, steps in timeline.steps.items() if thread.track == HOST
             for step in steps if step.call and step.call.kind == "operator"}  # fmt: skip
    if not names or pes < 2:
        return 1.0
    return pes - 1.0 if any("all_gather" in each or each == "attention" for each in names) else 1 - 1 / pes


def _signals(step: Step) -> bool:
    """Whether a step without data to move takes the latency of its route."""
    return step.call is not None and (step.route == CALLS or signals(step.call))


def _ratio(
    links: Links, machine: Machine, before: tuple[float, float], after: tuple[float, float], best: float = 0.0
) -> float:
    """How many times as long it takes to exchange and move ``after`` there as ``before`` here.

    best: a rate that others reach here. A link of a rate between that and the own one changes nothing.
    """
    latency = links.latency if machine.latency is None else machine.latency
    rate = links.rate if machine.link_rate is None else 1e3 * machine.link_rate
    if rate > links.rate:
        rate = links.rate * max(1.0, rate / max(best, links.rate))
    here = before[0] * links.latency + before[1] / links.rate
    return (after[0] * latency + after[1] / rate) / here if here else 1.0


def best_of(models: Iterable[Model]) -> Rates:
    """The rate that some timeline has reached on each route, in bytes a us."""
    found: Rates = {}
    for model in models:
        for route, links in model.links.items():
            if links.rate != math.inf:
                found[route] = max(found.get(route, 0.0), links.rate)
    return found


def predicted(
    timeline: Timeline, machine: Machine, best: Rates | None = None, window: Window | None = None
) -> Prediction:
    """Replay a timeline on another machine. Each PE does what it did; further PEs do as those of the timeline: see grown.

    best: of other timelines of the same machine.  window: predict what was recorded between these times.
    """
    model = Model(timeline)
    scale = model.scale(machine, best)
    more = machine.pes is not None and machine.pes > len(timeline.pes)
    draws = range(_DRAWS if more else 1)
    times = [grown(timeline, machine.pes or 0, seed).replay(scale, window=window) for seed in draws]
    errors: dict[int, float] = defaultdict(float)  # by PE, of the thread with the largest one
    for thread, steps in timeline.steps.items():
        within = [each for each in steps if window is None or (window[0] < each.end <= window[1])]
        of_fits = sum(model.error_of(each, scale(each)) for each in within if each.part == COMMUNICATION)
        errors[thread.pe] = max(errors[thread.pe], of_fits + timeline.unexplained(within))
    error = statistics.mean(errors.values()) if errors else 0.0
    if machine.pes not in (None, len(timeline.pes)) and any(each.track != HOST for each in timeline.steps):
        error += _OTHER_PES * statistics.mean(times)
    recorded = timeline.replay(unchanged, window=window)
    return Prediction(recorded, statistics.mean(times), error + statistics.pstdev(times), model.links, model.sent)
