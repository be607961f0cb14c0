"""Sheets: the figures of a run by group, from its JSON, for the terminal and for documentation.

Columns are those of the OSU micro-benchmarks and NVSHMEM's perftest: time, MB/s on the busiest link by NVSHMEM's bus factors
(benchmarks.rows), messages per second where a row is a stream of them, and in addition the share of the ceiling.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.figures import Figure
from benchmarks.rows import size
from benchmarks.table import Earlier, change, two

Run = Mapping[str, Any]
COLOURS = {"slower": "red", "faster": "green"}


class Sheet(NamedTuple):
    """A table of text. The first column is aligned to the left, and so is the last, with the other programs' names."""

    title: str
    header: list[str]
    lines: list[list[str]]


def sheets(run: Run, earlier: Earlier | None = None) -> list[Sheet]:
    """Return a sheet for each group of rows."""
    return [
        _sheet(run, group, list(rows), earlier)
        for group, rows in itertools.groupby(run["rows"], lambda row: row["group"])
    ]


def _sheet(run: Run, group: str, rows: Sequence[Run], earlier: Earlier | None) -> Sheet:
    """Return the sheet of a group. Columns without any entry are left out."""
    ours, *others = run["peers"]
    firsts = {row["row"]: row for row in reversed(rows)}  # a name stands in its first line only

    def first(row: Run) -> bool:
        return firsts[row["row"]] is row

    unit, factor = _unit(run, rows)
    columns: dict[str, Callable[[Run], str]] = {
        "": lambda row: row["row"] if first(row) else "",
        "bytes": lambda row: size(row["bytes"]),
        f"{ours}, {unit}": lambda row: _time(row, ours, factor),
        "±": lambda row: _spread(row, ours),
    }
    if earlier is not None:
        columns |= {
            f"earlier, {unit}": lambda row: _earlier(earlier, row, factor),
            "ratio": lambda row: _change(row, ours, earlier),
        }
    columns |= {
        "MB/s": lambda row: _number(row, ours, "busbw", 1e3),
        "messages/s": lambda row: _number(row, ours, "messages_per_second", 1),
        "of ceiling": lambda row: _share(row, ours),
    }
    for name in others:
        columns |= {
            f"{name}, {unit}": lambda row, name=name: _time(row, name, factor),  # type: ignore[misc]
            f"ours / {name}": lambda row, name=name: _quotient(row, ours, name),  # type: ignore[misc]
        }
    columns["measured by others as"] = lambda row: row.get("alias", "") if first(row) else ""
    cells = {title: [entry(row) for row in rows] for title, entry in columns.items()}
    kept = {title: entries for title, entries in cells.items() if any(entries)}
    jobs = "" if any(row.get("pes") for row in rows) else f", {run['n_pes']} PEs"
    return Sheet(
        f"{run['suite']}: {group}{jobs}", list(kept), [list(line) for line in zip(*kept.values(), strict=True)]
    )


def show(console: Console, run: Run, earlier: Earlier | None = None) -> None:
    """Print the sheets of a run. Ratios that lie outside both spreads are marked slower or faster."""
    if run.get("no_figures"):
        console.print(run["no_figures"])
    for sheet in sheets(run, earlier):
        print_sheet(console, sheet)


def print_sheet(console: Console, sheet: Sheet) -> None:
    table = Table(title=sheet.title, title_justify="left")
    for place, name in enumerate(sheet.header):
        table.add_column(escape(name), justify="left" if place == 0 or name.endswith("as") else "right")
    for line in sheet.lines:
        table.add_row(*map(_coloured, line))
    console.print(table)


def markdown(run: Run) -> str:
    """Return the sheets of a run for a page, below its machine, versions and date."""
    parts = [f"{run['date'][:10]}, {run['n_pes']} PEs on {_machine(run)}. {_versions(run)}."]
    parts += map(as_markdown, sheets(run))
    parts += [
        f"Not measured: {name}: {reason.splitlines()[0].split('. ')[0]}" for name, reason in run["missing"].items()
    ]
    if run.get("left_out"):
        parts.append(f"Not reached in this run: {', '.join(run['left_out'])}")
    return "\n\n".join(parts)


def as_markdown(sheet: Sheet) -> str:
    rules = ["---" if not place else "---:" for place in range(len(sheet.header))]
    lines = [sheet.header, rules, *sheet.lines]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{sheet.title}**\n\n{table}"


# -- cells


def _figure(row: Run, name: str) -> Run:
    found: Run = row["figures"].get(name, {})
    return found


def _unit(run: Run, rows: Sequence[Run]) -> tuple[str, float]:
    """The unit of a group's column, and how many of it are one of the rows' unit: the largest that no figure is below."""
    found = [figure["median"] for row in rows for figure in row["figures"].values() if "median" in figure]
    least, unit = min(found, default=0.0), rows[0]["unit"]
    if unit == "s":
        return ("ms", 1e3) if least >= 1e-3 else ("µs", 1e6)
    return ("MB", 1e-6) if unit == "B" and least >= 1e6 else (unit, 1.0)


def _time(row: Run, name: str, factor: float) -> str:
    figure = _figure(row, name)
    if "median" not in figure:
        return "wrong result" if figure.get("wrong") else "missing" if figure.get("missing") else ""
    return digits(figure["median"] * factor)


def digits(value: float) -> str:
    """Return ``value`` with three digits, or all of those before the point; with two if it is below 0.01."""
    if 0 < value < 0.01:
        return f"{value:.2g}"
    return f"{value:.0f}" if value >= 100 else f"{value:.{1 if value >= 10 else 2 if value >= 1 else 3}f}"


def _spread(row: Run, name: str) -> str:
    figure = _figure(row, name)
    return f"{figure['spread']:.0%}" if len(figure.get("samples", (0, 0))) > 1 and "spread" in figure else ""


def _number(row: Run, name: str, field: str, factor: float) -> str:
    value = _figure(row, name).get(field)
    return digits(value * factor) if value else ""


def _share(row: Run, name: str) -> str:
    share = _figure(row, name).get("of_ceiling")
    return f"{share:.0%}" if share else ""


def _quotient(row: Run, ours: str, name: str) -> str:
    mine, other = _figure(row, ours), _figure(row, name)
    return two(mine["median"] / other["median"]) if "median" in mine and "median" in other else ""


def _earlier(earlier: Earlier, row: Run, factor: float) -> str:
    figure = earlier.get(row["key"], Figure())
    return digits(figure.median * factor) if figure.samples else ""


def _change(row: Run, ours: str, earlier: Earlier) -> str:
    new, old = Figure.read(_figure(row, ours)), earlier.get(row["key"], Figure())
    if not (new.samples and old.samples):
        return ""
    return f"{two(new.median / old.median)} {change(new, old)}".strip()


def _coloured(cell: str) -> str:
    colour = COLOURS.get(cell.split(" ")[-1])
    return f"[{colour}]{escape(cell)}[/]" if colour else escape(cell)


def _machine(run: Run) -> str:
    machine = run["machine"]
    gpu = run.get("pyshmem", {}).get("GPU")
    return f"{gpu} beside {machine['CPU']}" if gpu else f"{machine['cores']} cores of {machine['CPU']}"


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in run["versions"].items() if version)
