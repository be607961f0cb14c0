"""Several runs of a suite, each in a process of its own, taken together.

All samples of a run share clocks, cores and addresses. Only several runs show how much these matter: Figure.spread has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import BOUND, Figure, Report, slowest
from benchmarks.rows import Row, select

Run = Mapping[str, Any]
_FIELDS = {"suite", "n_pes", "peers", "no_figures", "left_out", "missing", "rows"}


def together(runs: Sequence[Run], rows: Sequence[Row]) -> Report:
    """Return the report of runs of the suite that has ``rows``, with the samples of all. The facts are the first run's."""
    first = runs[0]
    facts = {name: value for name, value in first.items() if name not in _FIELDS}
    report = Report(first["suite"], first["peers"], first["n_pes"], facts, missing=dict(first["missing"]))
    measured = [{row["key"]: row["figures"] for row in run["rows"]} for run in runs]
    for row in select(rows, None, report.n_pes):
        found = [figures[row.key] for figures in measured if row.key in figures]
        if found:
            report.results[row] = _figures(row, found)
    left = dict.fromkeys(key for run in runs for key in run.get("left_out", ()))
    report.left_out = [key for key in left if not any(key in figures for figures in measured)]
    return report


def _figures(row: Row, found: Sequence[Run]) -> dict[str, Figure]:
    names = dict.fromkeys(name for figures in found for name in figures if name != BOUND)
    figures = {name: _pooled([Figure.read(each[name]) for each in found if name in each]) for name in names}
    return figures | {BOUND: slowest(row.bound, figures)} if row.bound else figures


def _pooled(figures: Sequence[Figure]) -> Figure:
    """Return one figure. It has no samples if the result was wrong in a run, and is missing if no run has it."""
    timed = [figure for figure in figures if figure.samples]
    wrong = next((figure.wrong for figure in figures if figure.wrong), "")
    note = "; ".join(dict.fromkeys(figure.note for figure in figures if figure.note))
    if wrong or not timed:
        return Figure(figures[0].statement, note, wrong, figures[0].missing)
    runs = [each for figure in timed for each in figure.runs or [figure.median]]
    return Figure(
        timed[0].statement,
        note,
        samples=[each for figure in timed for each in figure.samples],
        runs=runs if len(runs) > 1 else [],
    )
