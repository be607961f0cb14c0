"""Takes the samples of a row: rounds that go from peer to peer, so that all of them see the same noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from benchmarks.figures import Figure
from benchmarks.rows import Row

SETTLED = 0.03


class Effort(NamedTuple):
    """A sample lasts about ``seconds`` where the clock can choose that.

    Rounds end at ``most``, or from ``least`` on when all spreads are below 3 %.
    """

    seconds: float
    least: int
    most: int


class Contender(NamedTuple):
    """A peer in one row, checked and warmed up. Not timed where its figure says that it is wrong or missing.

    sample: given the number of the round, seconds (or the row's unit) on the slowest PE, by the name of the figure.
    """

    peer: str
    figures: Mapping[str, Figure]  # the peer's own, and its ceiling's where that is timed beside it
    sample: Callable[[int], Mapping[str, float]]

    @property
    def able(self) -> bool:
        return not any(figure.wrong or figure.missing for figure in self.figures.values())

    @property
    def settled(self) -> bool:
        return self.figures[self.peer].spread < SETTLED


class Clock(Protocol):
    """How a suite's peers are prepared and timed: benchmarks.jobs or benchmarks.in_job."""

    peers: Sequence[str]  # the first is ours

    def prepare(self, row: Row, effort: Effort) -> list[Contender]:
        """The peers that have the row's operation. Each has done it and was checked."""

    def release(self) -> None:
        """Free what the row used."""


def measure(row: Row, clock: Clock, effort: Effort) -> dict[str, Figure]:
    """A figure for each peer that has the operation, by name. All are checked before one is timed.

    Errors: JobError where a job dies.
    """
    contenders = clock.prepare(row, effort)
    able = [each for each in contenders if each.able]
    for turn in range(row.rounds or effort.most):
        for contender in able if turn % 2 else able[::-1]:
            for name, taken in contender.sample(turn).items():
                contender.figures[name].samples.append(taken / row.steps)
        if turn + 1 >= effort.least and all(contender.settled for contender in able):
            break
    clock.release()
    return {name: figure for contender in contenders for name, figure in contender.figures.items()}
