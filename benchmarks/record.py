"""Writes the JSON of a run, with the machine, versions and date, and reads it; and the medians that docs/figures has."""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Figures, Report, busbw, of_bound, of_ceiling
from benchmarks.rows import Row

_HEAD = ("suite", "n_pes", "peers", "date", "machine", "versions", "missing")  # of a run, for a page
_NAMES = ("key", "group", "row", "parameters", "pes", "unit", "alias")  # of a row
_SHOWN = ("median", "spread", "busbw", "messages_per_second", "of_ceiling")  # of our figure; of others the median
_PACKAGES = ("numpy", "torch", "triton", "mpi4py", "mpich", "cupy-cuda13x", "cupy")


def facts() -> dict[str, Any]:
    """Return the machine, the versions and the date of this process and its checkout."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "node": platform.node(),
            "CPU": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "load average before": round(os.getloadavg()[0], 1),
            "kernel": platform.release(),
        },
        "versions": {"Python": platform.python_version(), **_versions(), "commit": commit(Path(__file__).parents[1])},
    }


def commit(folder: Path) -> str:
    """Return the commit of the checkout, with + if files differ from it; "" if git finds none."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def write(path: str, report: Report) -> None:
    Path(path).write_text(json.dumps(as_json(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def as_json(report: Report) -> dict[str, Any]:
    """Return the samples in seconds or the row's unit, and NVSHMEM's algbw and busbw in GB/s if bytes move."""
    found = {"suite": report.suite, "n_pes": report.n_pes, "peers": report.peers, **report.facts}
    if report.no_figures:
        found["no_figures"] = report.no_figures
    if report.left_out:
        found["left_out"] = report.left_out
    return found | {"missing": report.missing, "rows": [_row(row, report) for row in report.results]}


def read_all(path: str) -> list[dict[str, Any]]:
    """Return the runs of a file that ``write`` or ``write_all`` wrote. Errors: OSError, ValueError."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    runs = found.get("runs", [found]) if isinstance(found, Mapping) else []
    if not runs or not all({"suite", "peers", "rows"} <= set(run) for run in runs):
        raise ValueError(f"{path}: this file was not written by --json of these benchmarks")
    return list(runs)


def write_all(path: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Write the runs of several suites."""
    Path(path).write_text(json.dumps({"runs": runs}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_medians(folder: str, run: Mapping[str, Any]) -> Path:
    """Write a run to FOLDER/SUITE.json without its samples: a line for each group, for pages that are built from it.

    A row whose runs differ by more than its median is left out: it tells a reader nothing.
    """
    head = {name: run[name] for name in _HEAD if name in run}
    head |= {"pyshmem": {"GPU": gpu}} if (gpu := run.get("pyshmem", {}).get("GPU")) else {}
    ours = run["peers"][0]
    mine = [(row, row["figures"].get(ours, {})) for row in run["rows"]]
    kept = [row for row, figure in mine if "median" in figure and figure.get("spread", 0) <= 1]
    groups = itertools.groupby((_medians(row, ours) for row in kept), lambda row: row["group"])
    lines = [", ".join(json.dumps(row, ensure_ascii=False) for row in rows) for _, rows in groups]
    path = Path(folder, f"{run['suite']}.json")
    text = json.dumps(head, ensure_ascii=False)[:-1] + ', "rows": [\n' + ",\n".join(lines) + "\n]}\n"
    path.write_text(text, encoding="utf-8")
    return path


def _medians(row: Mapping[str, Any], ours: str) -> dict[str, Any]:
    figures = {
        name: {
            field: float(f"{figure[field]:.4g}")
            for field in (_SHOWN if name == ours else _SHOWN[:1])
            if field in figure
        }
        for name, figure in row["figures"].items()
        if "median" in figure
    }
    return {name: row[name] for name in _NAMES if row.get(name)} | {"bytes": row["bytes"], "figures": figures}


def read(path: str, suite: str) -> tuple[dict[str, Any], dict[str, Figure]]:
    """Return the run of ``suite``, and the figures of its first peer by row key. Errors: OSError, ValueError."""
    runs = {run["suite"]: run for run in read_all(path)}
    if suite not in runs:
        raise ValueError(f"{path}: it has {', '.join(runs)} but not {suite}")
    found = runs[suite]
    ours = found["peers"][0]
    figures = {}
    for row in found["rows"]:
        figures[row["key"]] = Figure.read(row["figures"].get(ours, {}))
    return dict(found), figures


def _row(row: Row, report: Report) -> dict[str, Any]:
    figures = report.results[row]
    return {
        "key": row.key,
        "group": row.group,
        "row": row.name,
        "bytes": row.nbytes,
        "parameters": row.parameters,
        "pes": row.pes,
        "unit": row.unit,
        "alias": row.alias,
        "ceiling": row.ceiling,
        "figures": {
            name: _figure(row, figure, report.n_pes) | _shares(row, figures, name) for name, figure in figures.items()
        },
    }


def _shares(row: Row, figures: Figures, name: str) -> dict[str, float]:
    shares = {"of_bound": of_bound(figures, figures[name]), "of_ceiling": of_ceiling(row, figures, name)}
    return {key: share for key, share in shares.items() if share is not None}


def _figure(row: Row, figure: Figure, n_pes: int) -> dict[str, Any]:
    texts = {name: getattr(figure, name) for name in ("statement", "note", "wrong", "missing")}
    fields: dict[str, Any] = {name: text for name, text in texts.items() if text}
    if figure.samples:
        fields |= {"median": figure.median, "spread": figure.spread, "samples": figure.samples}
        fields |= {"runs": figure.runs} if figure.runs else {}
        bandwidth = busbw(row, figure, n_pes)
        if bandwidth:
            fields |= {"algbw": row.nbytes / figure.median / 1e9, "busbw": bandwidth / 1e9}
        if row.messages:
            fields["messages_per_second"] = 1 / figure.median
    return fields


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
