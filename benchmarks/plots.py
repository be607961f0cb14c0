"""Pictures of sweeps over sizes and over PEs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

MARKS = "osv^D*xP"


def sweeps(run: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw a picture of each group of a run with a row at three sizes or more, or at three numbers of PEs."""
    drawn = []
    for group, found in itertools.groupby(run["rows"], lambda row: row["group"]):
        rows = list(found)
        path = folder / f"{_file_name(run['suite'])}_{_file_name(group)}.png"
        if max(len(list(each)) for _, each in itertools.groupby(rows, lambda row: row["row"])) > 2:
            drawn.append(_by_size(run, group, rows, path))
        elif len({row.get("pes") for row in rows} - {0}) > 2:
            drawn.append(_by_pes(run, group, rows, path))
    return drawn


def _by_size(run: Mapping[str, Any], group: str, rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw times on the left and rates on the right. The ceilings are dotted lines."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axes, unit, value in ((left, "µs", _microseconds), (right, "MB/s on the busiest link", _megabytes)):
        for mark, (name, each) in zip(itertools.cycle(MARKS), _lines(run, rows), strict=False):
            ceiling = any(name.endswith(row["ceiling"]) for row in rows if row["ceiling"])
            points = [(row["bytes"], value(row, figure)) for row, figure in each if row["bytes"]]
            style = {"linestyle": ":", "color": "black"} if ceiling else {"marker": mark, "markersize": 4}
            axes.plot(*zip(*points, strict=True), label=f"{name} (ceiling)" if ceiling else name, **style)
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel=unit)
        axes.grid(visible=True, which="major", alpha=0.3)
    names = left.get_legend_handles_labels()
    figure.set_figheight(4.2 + 0.2 * -(-len(names[1]) // 3))  # of the legend below, which hides no line
    figure.legend(*names, loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(_title(run, group))
    return save(figure, path)


def _by_pes(run: Mapping[str, Any], group: str, rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(6, 4.2), layout="constrained")
    for kind, several in itertools.groupby(rows, lambda row: row["row"].rpartition(", ")[0]):
        for mark, (name, each) in zip(MARKS, _lines(run, list(several), kind), strict=False):
            points = [(row["pes"], figure["median"] * (1e6 if row["unit"] == "s" else 1)) for row, figure in each]
            axes.plot(*zip(*points, strict=True), marker=mark, markersize=4, label=name)
    axes.set(xscale="log", yscale="log", xlabel="PEs", ylabel="µs" if rows[0]["unit"] == "s" else rows[0]["unit"])
    axes.set_xticks(sorted({row["pes"] for row in rows}), sorted({row["pes"] for row in rows}))
    axes.minorticks_off()
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title(_title(run, group), fontsize="medium")
    return save(figure, path)


def _lines(
    run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], kind: str = ""
) -> Iterable[tuple[str, list[tuple[Any, Any]]]]:
    """Yield the lines of a picture: a peer at the sizes of a row's name, or of ``kind``."""
    kinds = list(dict.fromkeys(kind or row["row"] for row in rows))
    for each, name in itertools.product(kinds, _peers(run, rows)):
        chosen = [row for row in rows if kind or row["row"] == each]
        points = [(row, row["figures"][name]) for row in chosen if row["figures"].get(name, {}).get("samples")]
        if points:
            yield (f"{each}: {name}" if kind or len(kinds) > 1 else name), points


def _peers(run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The peers, and the ceiling of our job: those of the others' jobs are nearly the same."""
    ceilings = {row["ceiling"] for row in rows if row["ceiling"]}
    return [*run["peers"], *(name for name in sorted(ceilings) if name not in run["peers"])]


def _microseconds(row: Mapping[str, Any], figure: Mapping[str, Any]) -> float:
    return float(figure["median"]) * 1e6


def _megabytes(row: Mapping[str, Any], figure: Mapping[str, Any]) -> float:
    return float(figure.get("busbw", row["bytes"] / figure["median"] / 1e9)) * 1e3


def _title(run: Mapping[str, Any], group: str) -> str:
    machine = run.get("pyshmem", {}).get("GPU") or f"{run['machine']['cores']} cores of {run['machine']['CPU']}"
    return f"{run['suite']}: {group}; {run['n_pes']} PEs, {machine}, {run['date'][:10]}"


def save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _file_name(group: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in group)
