"""Takes the samples of a row in rounds over all peers, so that all peers see the same noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from benchmarks.figures import BOUND, Figure, slowest
from benchmarks.rows import Row

SETTLED = 0.03


class Effort(NamedTuple):
    """A sample takes about ``seconds`` if the clock can choose its length.

    Rounds end at ``most``, or from ``least`` on when all spreads are below 3 %. A sample of separate jobs is the median of
    ``repeats``: short repeats avoid the other programs of a busy machine.
    """

    seconds: float
    least: int
    most: int
    repeats: int = 1

    def part(self, runs: int) -> Effort:
        """Return the effort of one of ``runs`` runs whose samples are taken together."""
        return self._replace(least=max(2, -(-self.least // runs)), most=max(2, -(-self.most // runs)))


class Contender(NamedTuple):
    """A peer in one row, checked and warmed up. It is not timed if its figure is wrong or missing.

    sample: takes the number of the round and returns the seconds (or the row's unit) on the slowest PE, by figure name.
    """

    peer: str
    figures: Mapping[str, Figure]  # the peer's own, and its ceiling's if that is timed with it
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
        """Return the peers that have the row's operation. Each has run it once, and its result was checked."""

    def release(self) -> None:
        """Free what the row used."""


def measure(row: Row, clock: Clock, effort: Effort) -> dict[str, Figure]:
    """Return a figure for each peer that has the operation, by name. All peers are checked before any is timed.

    Errors: JobError if a job ends.
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
    figures = {name: figure for contender in contenders for name, figure in contender.figures.items()}
    return figures | {BOUND: slowest(row.bound, figures)} if row.bound else figures
