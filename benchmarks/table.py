"""Prints the results of all suites: a table of figures, wrong results and missing peers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.figures import BOUND, Figure, Figures, Report, busbw, of_bound, of_ceiling, ratio
from benchmarks.rows import KIB, Row, size

RATED = 64 * KIB  # least bytes of payload for which a rate is printed
LEAST = 0.02  # what is no change, however small the spreads are: GPUs at another clock differ by as much
WIDE = 400  # columns where the output is no terminal: no cell is cut
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
Earlier = dict[str, Figure]  # our figures of an earlier run, by the row's key


def show(console: Console, report: Report, earlier: Earlier | None = None, earlier_name: str = "") -> None:
    """Print one line for each row, and one more for each further peer."""
    title = f"{report.suite}: slowest of {report.n_pes} PEs, median ± spread; ratio: ours / theirs"
    if report.no_figures:
        console.print(report.no_figures, soft_wrap=True)
    table = Table(title=title)
    table.add_column("row", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column(report.ours, justify="right", no_wrap=True)
    if earlier is not None:
        table.add_column("earlier", justify="right", no_wrap=True)
        table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("beside it", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    group = ""
    for row in report.results:
        if row.group != group:
            group = row.group
            table.add_section()
            table.add_row(f"[bold]{escape(group)}[/]")
        for line in _lines(row, report, earlier):
            table.add_row(*line)
    console.print(table)
    remarks(console, report, earlier, earlier_name)


def remarks(console: Console, report: Report, earlier: Earlier | None, earlier_name: str) -> None:
    """Print the lines below the tables."""
    for text in dict.fromkeys(_remarks(report, earlier, earlier_name)):
        console.print(text, highlight=False, markup=False)


def _lines(row: Row, report: Report, earlier: Earlier | None) -> Iterator[list[str]]:
    figures = report.results[row]
    mine = figures.get(report.ours, Figure())
    first = [escape(row.name), size(row.nbytes), cell(row, mine, report.n_pes) + _share(row, report.ours, figures)]
    if earlier is not None:
        old = earlier.get(row.key, Figure())
        first += [cell(row, old, report.n_pes), _verdict_on_change(mine, old)]
    beside = [
        [
            escape(_title(row, name)),
            cell(row, each, report.n_pes) + _share(row, name, figures),
            _beside(row, name, mine, each),
        ]
        for name, each in figures.items()
        if name != report.ours and not each.missing
    ]
    for number, other in enumerate(beside or [[""] * 3]):
        yield [*(first if not number else [""] * len(first)), *other]


def cell(row: Row, figure: Figure, n_pes: int) -> str:
    """Return the text of a figure: the rate if bytes move, the time or value, and the spread."""
    if not figure.samples:
        return "wrong result" if figure.wrong else "missing" if figure.missing else "-"
    median = figure.median
    scale, unit = (1.0, row.unit) if row.unit != "s" else next((s for s in _SCALES if median >= s[0]), _SCALES[-1])
    digits = 3 if median / scale < 1 else 2 if median / scale < 100 else 0
    text = f"{median / scale:.{digits}f} {unit} ±{min(figure.spread, 9.99):4.0%}"
    bandwidth = busbw(row, figure, n_pes)
    return f"{bandwidth / 1e9:.{bandwidth < 1e11:d}f} GB/s  {text}" if bandwidth and row.nbytes >= RATED else text


def _share(row: Row, name: str, figures: Figures) -> str:
    """Return what part of the speed of the bound, or else of the ceiling, a peer reaches."""
    share = None if name in (BOUND, *row.bound) else of_bound(figures, figures.get(name))
    share = share if row.bound else of_ceiling(row, figures, name)
    return "" if share is None else f" {share:5.1%}"


def _title(row: Row, name: str) -> str:
    return f"{name} (ceiling)" if name == row.ceiling else name


def _beside(row: Row, name: str, mine: Figure, other: Figure) -> str:
    """Return our time divided by the other's. The ceiling of another peer has no ratio to our time."""
    return "" if row.ceiling and name.startswith(f"{row.ceiling} beside ") else two(ratio(mine, other))


def two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def change(new: Figure | None, old: Figure | None) -> str:
    """Return "slower" or "faster" if the difference exceeds the sum of both spreads and LEAST, else ""."""
    quotient = ratio(new, old)
    if quotient is None or new is None or old is None:
        return ""
    noise = max(new.spread + old.spread, LEAST)
    return "slower" if quotient - 1 > noise else "faster" if 1 - quotient > noise else ""


def _verdict_on_change(new: Figure, old: Figure) -> str:
    word = change(new, old)
    colour = {"slower": "red", "faster": "green"}.get(word)
    return f"{two(ratio(new, old))} [{colour}]{word}[/]" if colour else two(ratio(new, old))


def _remarks(report: Report, earlier: Earlier | None, earlier_name: str) -> Iterator[str]:
    """Return the lines below the table: reasons for missing figures, changes beyond the spreads."""
    for name, reason in report.missing.items():
        yield f"missing: {name}: {reason}"
    if report.left_out:
        yield f"left out after the time of --budget: {len(report.left_out)} rows: {', '.join(report.left_out)}"
    for row, figures in report.results.items():
        for name, figure in figures.items():
            if figure.missing:
                yield f"missing: {row.name if name == report.ours else name}: {figure.missing}"
            if figure.note:
                yield f"{row.name}, {name}: {figure.note}"
            if figure.wrong:
                yield f"{row.name}, {name}: not timed: {figure.statement or 'it'} gives a wrong result: {figure.wrong}"
    if earlier is not None:
        yield from _changes({row: earlier.get(row.key) for row in report.results}, report, earlier_name)


def _changes(old: dict[Row, Figure | None], report: Report, name: str) -> Iterator[str]:
    compared = {row: each for row, each in old.items() if ratio(report.results[row].get(report.ours), each) is not None}
    slower = [row.key for row, each in compared.items() if change(report.results[row][report.ours], each) == "slower"]
    yield f"slower than {name} beyond the spreads: {len(slower)} of {len(compared)} rows" + (
        f": {', '.join(slower)}" if slower else ""
    )


def terminal() -> Console:
    """Return stdout; where it is no terminal, as wide as tables are."""
    return Console(width=None if sys.stdout.isatty() else WIDE)


def describe(console: Console, report: Report) -> None:
    """Print the machine, the versions and the settings of each peer, one line for each."""
    for name, facts in report.facts.items():
        text = "; ".join(f"{key}: {value}" for key, value in facts.items()) if isinstance(facts, dict) else facts
        console.print(f"{name}: {escape(str(text))}", highlight=False, soft_wrap=True)
