"""The rows of a suite. A row names an operation of the suite, its bytes and its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


# -- bus factors: n_pes to the bytes on the busiest link, per byte of payload


def once(n_pes: int) -> float:
    return 1.0


def both_ways(n_pes: int) -> float:
    """Two PEs send the payload to each other at once: the rates of both directions are added, as in osu_put_bibw."""
    return 2.0


def others(n_pes: int) -> float:
    """Each PE sends the payload to every other."""
    return n_pes - 1


def shares(n_pes: int) -> float:
    """Each PE sends one of n_pes parts of the payload to every other."""
    return (n_pes - 1) / n_pes


def all_reduce(n_pes: int) -> float:
    return 2 * (n_pes - 1) / n_pes


@dataclass(frozen=True)
class Row:
    """``operation`` is a method of the suite's peers or of its operations. It is called with nbytes and the parameters."""

    group: str
    name: str
    operation: str
    nbytes: int = 0  # of payload; 0: the row has no size
    parameters: tuple[object, ...] = ()
    steps: int = 1  # the number of counted operations in a step: a ping-pong has two
    bus: Callable[[int], float] | None = None
    bound: tuple[str, ...] = ()  # the peers of which the slowest is the row's bound; a figure of that name is added
    ceiling: str = ""  # the peer that moves the same bytes by the fastest method outside the library
    unit: str = "s"
    alias: str = ""  # the programs of the OSU micro-benchmarks and of NVSHMEM's perftest that measure the same
    messages: bool = False  # a step is a message of a stream of them: its rate is shown
    dense: bool = False  # measured with --full only
    brief: bool = True  # measured with --quick too
    pes: int = 0  # of the row's own jobs; 0: as many as the command says
    least_pes: int = 1
    rounds: int = 0  # the most samples; 0: the number in Effort

    @property
    def key(self) -> str:
        return f"{self.name} {self.nbytes}" if self.nbytes else self.name


def sweep(least: int, most: int) -> dict[int, bool]:
    """Return the sizes from ``least`` to ``most`` in powers of two, each with whether it is measured with --full only.

    Those of other runs are ``least`` times powers of eight, and ``most``.
    """
    places = range((most // least).bit_length())
    return {least << place: place % 3 != 0 and least << place != most for place in places}


def select(
    rows: Iterable[Row], only: Sequence[str] | None, n_pes: int | None = None, dense: bool = True, quick: bool = False
) -> list[Row]:
    """Return the rows with a text of ``only`` in group, name or size that ``n_pes`` PEs can run.

    dense: with those of --full.  quick: without ``only``, the brief rows alone.
    """
    able = [row for row in rows if (n_pes is None or n_pes >= row.least_pes) and (dense or not row.dense)]
    if quick and not only:
        return [row for row in able if row.brief]
    return [row for row in able if not only or any(text in _searched(row) for text in only)]


def in_turn(rows: Sequence[Row], turn: int = 0, turns: int = 1) -> list[Row]:
    """Return the first row of each group, then the second of each, and so on; at the end the rows with jobs of their own.

    Each run starts at another row, so that later runs reach the rows for which the first has no time.
    """
    seen: Counter[str] = Counter()
    places = {}
    for row in rows:
        places[row] = (row.pes > 0, 0 if row.pes else seen[row.group])
        seen[row.group] += 1
    found = sorted(rows, key=lambda row: places[row])
    start = len(found) * turn // turns
    return found[start:] + found[:start]


def size(nbytes: int, unit: str = "") -> str:
    if nbytes >= MIB:
        return f"{nbytes // MIB} Mi{unit}"
    return f"{nbytes // KIB} Ki{unit}" if nbytes >= KIB else f"{nbytes} {unit}".rstrip() if nbytes else ""


def _searched(row: Row) -> str:
    return f"{row.group} {row.key}\n{row.name} {size(row.nbytes, 'B')}"
