"""Figures for people (a table) and for programs (JSON)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rows import KIB, MIB, Row
from benchmarks.runner import Figure

Results = Mapping[Row, Mapping[str, Figure]]
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def show(console: Console, results: Results, peers: Sequence[str], n_pes: int) -> None:
    """One line a row: each library's median and spread, the ratios of the first library's time to the others', the goal."""
    ours, others = peers[0], peers[1:]
    title = f"Slowest of {n_pes} PEs: median ± half the interquartile range"
    table = Table(title=title + f"; ratio: {ours} / other" if others else title)
    table.add_column("row", no_wrap=True)
    table.add_column("bytes", justify="right")
    for name in peers:
        table.add_column(name, justify="right", no_wrap=True)
    for name in others:
        table.add_column("ratio" if len(others) == 1 else f"/ {name}", justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    group = ""
    for row, figures in results.items():
        if group and row.group != group:
            table.add_section()
        group = row.group
        cells = [_figure(row, figures[name]) for name in peers]
        ratios = [_number(_ratio(figures[ours], figures[name])) for name in others]
        table.add_row(row.name, size(row.nbytes), *cells, *ratios, _verdict(row, figures, ours))
        if any(figure.ceiling for figure in figures.values()):
            cells = [_figure(row, figures[name].ceiling or Figure()) for name in peers]
            table.add_row("  memcpy beside it", "", *cells, style="dim")
    console.print(table)
    for line in dict.fromkeys(notes(results)):
        console.print(line, highlight=False, markup=False)
    judged = [(row, met(row, figures, ours)) for row, figures in results.items() if row.goal]
    missed = [row.key for row, reached in judged if reached is False]
    known = [reached for _, reached in judged if reached is not None]
    if judged:
        open_rows = [row.key for row, reached in judged if reached is None]
        parts = [f"{sum(known)} of {len(known)} goals met"]
        parts += [f"missed: {', '.join(missed)}"] if missed else []
        parts += [f"not compared: {', '.join(open_rows)}"] if open_rows else []
        console.print("; ".join(parts), highlight=False)


def notes(results: Results) -> list[str]:
    """Where a library was timed with other calls than the row's name says, or not at all because its result is wrong."""
    lines = []
    for row, figures in results.items():
        for name, figure in figures.items():
            if figure.note:
                lines.append(f"{row.name}, {name}: {figure.note}")
            if figure.wrong:
                lines.append(f"{row.name}, {name}: not timed, for {figure.statement} goes wrong: {figure.wrong}")
    return lines


def as_json(results: Results, peers: Sequence[str], n_pes: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All samples, in seconds or bytes, with NVSHMEM's algbw and busbw in GB/s where bytes move."""
    rows = []
    for row, figures in results.items():
        libraries = {}
        for name, figure in figures.items():
            if figure.samples:
                fields = {"statement": figure.statement, "median": figure.median, "samples": figure.samples}
                ceiling = {"ceiling": figure.ceiling.samples} if figure.ceiling else {}
                libraries[name] = fields | ceiling | _bandwidths(row, figure, n_pes)
        goal = {"goal": row.goal.text, "met": met(row, figures, peers[0])} if row.goal else {}
        rows.append({"row": row.name, "bytes": row.nbytes, "unit": row.unit, "libraries": libraries, **goal})
    return {"n_pes": n_pes, "settings": settings, "rows": rows}


def met(row: Row, figures: Mapping[str, Figure], ours: str) -> bool | None:
    """Whether the row's goal is reached, None where it has none or what it is compared with was not measured."""
    quotient = _to_goal(row, figures, ours)
    return None if quotient is None or row.goal is None else quotient <= row.goal.most


def size(nbytes: int) -> str:
    if nbytes >= MIB:
        return f"{nbytes // MIB} Mi"
    return f"{nbytes // KIB} Ki" if nbytes >= KIB else str(nbytes or "")


def _to_goal(row: Row, figures: Mapping[str, Figure], ours: str) -> float | None:
    """What the goal's limit applies to."""
    mine = figures[ours]
    if row.goal is None or not mine.samples:
        return None
    if not row.goal.against:
        return mine.median
    return _ratio(mine, mine.ceiling if row.goal.against == "ceiling" else figures.get(row.goal.against))


def _ratio(ours: Figure, other: Figure | None) -> float | None:
    return ours.median / other.median if ours.samples and other and other.samples else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _verdict(row: Row, figures: Mapping[str, Figure], ours: str) -> str:
    if not row.goal:
        return ""
    reached = met(row, figures, ours)
    seen = f" ({_number(_to_goal(row, figures, ours))})" if row.goal.against == "ceiling" else ""
    return f"{row.goal.text}{seen}: " + ("?" if reached is None else "[green]met[/]" if reached else "[red]missed[/]")


def _figure(row: Row, figure: Figure) -> str:
    if not figure.samples:
        return "wrong result" if figure.wrong else "-"
    median = figure.median
    scale, unit = (1.0, row.unit) if row.unit != "s" else next((s for s in _SCALES if median >= s[0]), _SCALES[-1])
    digits = 3 if median / scale < 1 else 2 if median / scale < 100 else 0
    text = f"{median / scale:.{digits}f} {unit} ±{min(figure.spread, 9.99):4.0%}"
    return f"{row.nbytes / median / 1e9:.1f} GB/s  {text}" if row.bus and row.nbytes >= 64 * KIB else text


def _bandwidths(row: Row, figure: Figure, n_pes: int) -> dict[str, float]:
    if not row.bus:
        return {}
    algbw = row.nbytes / figure.median / 1e9
    return {"algbw": algbw, "busbw": algbw * row.bus(n_pes)}
