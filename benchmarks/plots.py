"""Pictures of the operators' figures: times against the bound, and what the GPU did when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.figures import BOUND, Report
from benchmarks.rows import Row

Span = tuple[str, int, float, float]  # name, stream, start, end in microseconds
INCH_A_BAR = 0.22


def times(report: Report, folder: Path) -> list[Path]:
    """Draw a picture for each group of rows with a bound: a cluster of bars for each row, in units of its bound."""
    groups: dict[str, list[Row]] = {}
    for row, figures in report.results.items():
        if BOUND in figures and figures[BOUND].samples:
            groups.setdefault(row.group, []).append(row)
    return [_clusters(report, group, rows, folder) for group, rows in groups.items()]


def _clusters(report: Report, group: str, rows: Sequence[Row], folder: Path) -> Path:
    names = [name for name in report.peers if any(_timed(report, row, name) for row in rows)]
    figure, axes = pyplot.subplots(
        figsize=(max(7.0, INCH_A_BAR * len(rows) * (len(names) + 2)), 5), layout="constrained"
    )
    colours = pyplot.get_cmap("tab20").colors
    for place, name in enumerate(names):
        drawn = [(i, report.results[row]) for i, row in enumerate(rows) if _timed(report, row, name)]
        left = [i + (place - len(names) / 2 + 0.5) / (len(names) + 2) for i, _ in drawn]
        heights = [figures[name].median / figures[BOUND].median for _, figures in drawn]
        axes.bar(
            left, heights, 1 / (len(names) + 2), label=name, color=colours[report.peers.index(name) % len(colours)]
        )
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(rows)), [_label(report, row) for row in rows])
    axes.set_ylabel("time / bound, the slower of GEMM and copies")
    axes.set_title(f"{group}, {report.n_pes} PEs")
    figure.legend(fontsize="small", ncols=4, loc="outside lower center")
    return _write(figure, folder / f"{_file_name(group)}.png")


def _timed(report: Report, row: Row, name: str) -> bool:
    return name in report.results[row] and bool(report.results[row][name].samples)


def _label(report: Report, row: Row) -> str:
    bound = report.results[row][BOUND].median
    return f"{row.name.removeprefix(row.group).strip()}\nbound {bound * 1e3:.3g} ms"


def timeline(title: str, spans: Mapping[str, Sequence[Span]], path: Path) -> Path:
    """Draw the spans of one call by each schedule: a band for each stream, kernels in blue, copies in orange."""
    lines = [(name, stream) for name, each in spans.items() for stream in sorted({span[1] for span in each})]
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.4 * len(lines)), layout="constrained")
    for height, (name, stream) in enumerate(reversed(lines)):
        here = [span for span in spans[name] if span[1] == stream]
        colours = ["tab:orange" if "memcpy" in what.lower() else "tab:blue" for what, *_ in here]
        axes.broken_barh([(start, end - start) for _, _, start, end in here], (height - 0.4, 0.8), facecolors=colours)
    axes.set_yticks(range(len(lines)), [f"{name}, stream {stream}" for name, stream in reversed(lines)])
    axes.set_xlabel("µs")
    axes.set_title(title)
    return _write(figure, path)


def _write(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _file_name(group: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in group)
