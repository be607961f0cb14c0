"""Takes the samples of a row: rounds that go from library to library, so that all of them see the same noise."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.jobs import Job, JobError, one_process
from benchmarks.rows import Row

PROCESS_ROUNDS = 5
SETTLED = 0.03


@dataclass(frozen=True)
class Effort:
    """A sample lasts about ``seconds``. Rounds end at ``most``, or from ``least`` on when all spreads are below 3 %.

    Samples are shorter than a scheduler's slice: on a busy machine many of them then run without being interrupted.
    """

    seconds: float
    least: int
    most: int


QUICK, FULL = Effort(0.001, 7, 15), Effort(0.002, 25, 101)


@dataclass
class Figure:
    """One library's samples of one row, per step, of the slowest PE. Empty: it has no such call, or does it wrong."""

    statement: str = ""
    note: str = ""
    wrong: str = ""
    samples: list[float] = field(default_factory=list)
    ceiling: Figure | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a part of the median."""
        low, middle, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / 2 / middle


def measure(row: Row, jobs: Sequence[Job], effort: Effort) -> dict[str, Figure]:
    """A figure for each job, by the peer's name. The case has been checked in all of them before any is timed.

    Errors: JobError where a job dies.
    """
    if row.group == "Process":
        return {job.peer.name: _whole_process(row, job) for job in jobs}
    figures = {job.peer.name: _prepare(row, job) for job in jobs}
    able = [job for job in jobs if figures[job.peer.name].statement and not figures[job.peer.name].wrong]
    numbers = {job.peer.name: _number(job, effort.seconds) for job in able}
    for turn in range(effort.most):
        for job in able if turn % 2 else able[::-1]:
            name = job.peer.name
            answers = job("run", numbers[name], turn)
            _add(figures[name], answers, "seconds", numbers[name] * row.steps)
        if turn + 1 >= effort.least and all(figures[job.peer.name].spread < SETTLED for job in able):
            break
    return figures


def _prepare(row: Row, job: Job) -> Figure:
    try:
        answers = job("prepare", row.operation, row.nbytes)
    except JobError as error:
        raise JobError(f"{row.key}, {job.peer.name}: {error}") from None
    first = answers[0]
    if not first["found"]:
        return Figure()
    wrong = "".join(answer["wrong"] for answer in answers)
    ceiling = Figure(first["ceiling"]) if first["ceiling"] else None
    return Figure(first["statement"], first["note"], wrong, ceiling=ceiling)


def _add(figure: Figure, answers: Sequence[Mapping[str, Any]], key: str, steps: int) -> None:
    figure.samples.append(_slowest(answers, key) / steps)
    if figure.ceiling:
        _add(figure.ceiling, answers, "ceiling", steps)


def _number(job: Job, seconds: float) -> int:
    """How many steps last about ``seconds``."""
    number = 1
    while (took := _slowest(job("run", number), "seconds")) < seconds / 4 and number < 1 << 24:
        number = max(2 * number, min(10 * number, int(number * seconds / (took or 1e-9) / 3)))
    return max(1, round(number * seconds / took))


def _slowest(answers: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(max(answer[key] for answer in answers if answer[key] is not None))


def _whole_process(row: Row, job: Job) -> Figure:
    program = job.peer.programs.get(row.operation)
    if not program:
        return Figure()
    return Figure(program, samples=[one_process(job.peer, program) for _ in range(PROCESS_ROUNDS)])
