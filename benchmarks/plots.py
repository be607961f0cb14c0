"""Pictures of sweeps over sizes and over PEs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker

MARKS = "osv^D*xP"
Row = Mapping[str, Any]  # of a run, as record.as_json writes it


def sweeps(run: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw a picture of each group of a run with a row at three sizes or more, or at three numbers of PEs."""
    drawn = []
    for group, rows in _together(run["rows"], lambda row: row["group"]):
        path = folder / f"{_file_name(run['suite'])}_{_file_name(group)}.png"
        if max(len({row["bytes"] for row in each}) for _, each in _together(rows, lambda row: row["row"])) > 2:
            drawn.append(_by_size(run, group, rows, path))
        elif len({row.get("pes") for row in rows} - {0}) > 2:
            drawn.append(_by_pes(run, group, rows, path))
    return drawn


def _together(rows: Iterable[Row], key: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    """The rows by key, wherever they stand, in the order in which the keys come first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.items())


def _by_size(run: Mapping[str, Any], group: str, rows: Sequence[Row], path: Path) -> Path:
    """Draw times on the left and rates on the right, each with its spread; what bounds the others is a dotted line."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    streams = any("messages_per_second" in each for row in rows for each in row["figures"].values())
    rate = ("messages/s", _messages) if streams else ("MB/s on the busiest link", _megabytes)
    for axes, (unit, value) in ((left, ("µs", _microseconds)), (right, rate)):
        for mark, (name, each) in zip(itertools.cycle(MARKS), _lines(run, rows), strict=False):
            bound = any(name.endswith(row["ceiling"]) for row in rows if row["ceiling"])
            points = sorted(
                (row["bytes"], value(row, figure), figure.get("spread", 0)) for row, figure in each if row["bytes"]
            )
            if not points:
                continue
            style = {"linestyle": ":", "color": "black"} if bound else {"marker": mark, "markersize": 4}
            sizes, values, spreads = zip(*points, strict=True)
            (line,) = axes.plot(sizes, values, label=f"{name} (ceiling)" if bound else name, **style)
            low = [at / (1 + spread) for at, spread in zip(values, spreads, strict=True)]
            high = [at * (1 + spread) for at, spread in zip(values, spreads, strict=True)]
            axes.fill_between(sizes, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.set(yscale="log", xlabel="bytes", ylabel=unit)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(ticker.LogLocator(base=8, numticks=12))
        axes.tick_params(axis="x", labelsize="small")
        axes.xaxis.set_major_formatter(lambda at, _: _bytes(at))
        axes.grid(visible=True, which="major", alpha=0.3)
    names = left.get_legend_handles_labels()
    figure.set_figheight(4.2 + 0.2 * -(-len(names[1]) // 3))  # of the legend below, which hides no line
    figure.legend(*names, loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(_title(run, group))
    return save(figure, path)


def _by_pes(run: Mapping[str, Any], group: str, rows: Sequence[Row], path: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(6, 4.2), layout="constrained")
    for kind, several in _together(rows, lambda row: row["row"].rpartition(", ")[0]):
        for mark, (name, each) in zip(MARKS, _lines(run, several, kind), strict=False):
            points = sorted((row["pes"], figure["median"] * (1e6 if row["unit"] == "s" else 1)) for row, figure in each)
            axes.plot(*zip(*points, strict=True), marker=mark, markersize=4, label=name)
    axes.set(xscale="log", yscale="log", xlabel="PEs", ylabel="µs" if rows[0]["unit"] == "s" else rows[0]["unit"])
    axes.set_xticks(sorted({row["pes"] for row in rows}), sorted({row["pes"] for row in rows}))
    axes.minorticks_off()
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title(_title(run, group), fontsize="medium")
    return save(figure, path)


def _lines(run: Mapping[str, Any], rows: Sequence[Row], kind: str = "") -> Iterable[tuple[str, list[tuple[Any, Any]]]]:
    """Yield the lines of a picture: a peer at the sizes of a row's name, or of ``kind``."""
    kinds = list(dict.fromkeys(kind or row["row"] for row in rows))
    for each, name in itertools.product(kinds, _peers(run, rows)):
        chosen = [row for row in rows if kind or row["row"] == each]
        points = [(row, row["figures"][name]) for row in chosen if _timed(row["figures"].get(name, {}))]
        if points:
            yield (f"{each}: {name}" if kind or len(kinds) > 1 else name), points


def _peers(run: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """The peers, and the ceiling of our job: those of the others' jobs are nearly the same."""
    ceilings = {row["ceiling"] for row in rows if row["ceiling"]}
    return [*run["peers"], *(name for name in sorted(ceilings) if name not in run["peers"])]


def _timed(figure: Mapping[str, Any]) -> bool:
    return bool(figure.get("samples"))


def _bytes(at: float) -> str:
    """Such as "64" or "2 MiB"."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if at >= 1 << power:
            return f"{at / (1 << power):g} {unit}"
    return f"{at:g}"


def _microseconds(row: Mapping[str, Any], figure: Mapping[str, Any]) -> float:
    return float(figure["median"]) * 1e6


def _megabytes(row: Mapping[str, Any], figure: Mapping[str, Any]) -> float:
    return float(figure.get("busbw", row["bytes"] / figure["median"] / 1e9)) * 1e3


def _messages(row: Mapping[str, Any], figure: Mapping[str, Any]) -> float:
    return 1 / float(figure["median"])


def _title(run: Mapping[str, Any], group: str) -> str:
    machine = run.get("pyshmem", {}).get("GPU") or f"{run['machine']['cores']} cores of {run['machine']['CPU']}"
    return f"{run['suite']}: {group}; {_pes(run, group)}, {machine}, {run['date'][:10]}"


def _pes(run: Mapping[str, Any], group: str) -> str:
    """Such as "2 PEs": those of the rows, or of the run where rows name none."""
    counts = sorted({row.get("pes") or run["n_pes"] for row in run["rows"] if row["group"] == group})
    return f"{', '.join(map(str, counts))} PE{'s' * (counts != [1])}"


def save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _file_name(group: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in group)
