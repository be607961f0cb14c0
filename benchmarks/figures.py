"""Figures: the samples of one peer in one row, and their statistics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.rows import Row


@dataclass
class Figure:
    """Samples per step of the slowest PE. There are none if the peer is missing or its result is wrong."""

    statement: str = ""  # one step, as users write it
    note: str = ""
    wrong: str = ""
    missing: str = ""
    samples: list[float] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)  # the median of each, where the samples come from several runs

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Figure:
        """Return the figure of which JSON holds ``fields``."""
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__ if name in fields})

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, relative to the median.

        For several runs, the distance of the farthest run's median if that is more: runs differ in clocks, cores and
        addresses, and samples of one run do not.
        """
        if len(self.samples) < 2:
            return 0.0
        low, middle, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        farthest = max((abs(each - middle) for each in self.runs), default=0.0)
        return max((high - low) / 2, farthest) / middle if middle else 0.0


Figures = Mapping[str, Figure]
BOUND = "bound"


def slowest(peers: Sequence[str], figures: Figures) -> Figure:
    """Return the figure of the slowest peer, without those that were not measured."""
    timed = [name for name in peers if name in figures and figures[name].samples]
    if not timed:
        return Figure(missing=f"none of {', '.join(peers)} was measured")
    name = max(timed, key=lambda each: figures[each].median)
    return Figure(name, samples=list(figures[name].samples))


def of_bound(figures: Figures, figure: Figure | None) -> float | None:
    """Return the bound's time divided by the figure's, or None if one was not measured."""
    return ratio(figures.get(BOUND), figure)


def of_ceiling(row: Row, figures: Figures, name: str) -> float | None:
    """Return the time of the ceiling that was timed with the peer, divided by the peer's, or None without one."""
    if not row.ceiling or name.startswith(row.ceiling):
        return None
    beside = figures.get(f"{row.ceiling} beside {name}", figures.get(row.ceiling))
    return ratio(beside, figures.get(name))


@dataclass
class Report:
    """The results of a run, for the printer and for JSON. The first of ``peers`` is ours."""

    suite: str
    peers: list[str]
    n_pes: int
    facts: dict[str, Any]
    results: dict[Row, dict[str, Figure]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # peer: the reason why it was not measured
    left_out: list[str] = field(default_factory=list)  # keys of rows for which --budget was too short
    no_figures: str = ""  # the reason why the figures are not valid, as in a run that only tests the harness

    @property
    def ours(self) -> str:
        return self.peers[0]

    @property
    def wrong(self) -> bool:
        return any(self.ours in figures and figures[self.ours].wrong for figures in self.results.values())


def ratio(ours: Figure | None, other: Figure | None) -> float | None:
    """Return the time of ``ours`` divided by that of ``other``, or None if one was not measured."""
    return ours.median / other.median if ours and other and ours.samples and other.samples else None


def busbw(row: Row, figure: Figure, n_pes: int) -> float | None:
    """Return the bytes per second on the busiest link, or None if the row has no bus factor."""
    return row.nbytes * row.bus(n_pes) / figure.median if row.bus and figure.samples else None
