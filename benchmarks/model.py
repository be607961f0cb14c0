"""Predicts collectives and operators for n PEs on nodes from what two PEs measured, and checks itself against the run.

Run: python -m benchmarks.model RUN.json [--plots FOLDER] [--write-docs PAGE] [--node PES] [--far-latency S] [--far-rate B/S]
A transfer takes L + n G (the L and G of LogGP: Alexandrov, Ionescu, Schauser, Scheiman, 1995), fitted to the puts of the run
by relative least squares, with another G for what no cache holds. A collective is a barrier and the bytes on the busiest
link; an operator is the longer of its product at the run's matrix rate and of its bytes: a roofline whose axis is the flops
for each byte sent.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from benchmarks import record
from benchmarks.ops import SHAPES
from benchmarks.rows import KIB, MIB, size
from benchmarks.sheets import Sheet, as_markdown, digits, print_sheet, replace_marked

FLAT = 16  # members of which each writes to every other in a barrier; _teams.h
LARGE = 4 * MIB  # bytes beyond which the second G holds
PUTS = {"gpu_pt2pt": "put in a kernel", "pt2pt": "put, quiet"}  # the row that is fitted up to LARGE
BOTH = {"gpu_pt2pt": "put in a kernel, both ways", "pt2pt": "put both ways, quiet"}  # and beyond: all PEs send at once
LATENCIES = {"gpu_pt2pt": "put_signal", "pt2pt": "ping-pong: p"}  # a flag's way, in a barrier
# what benchmarks.nodes measured over TCP: a put and quiet of 8 B, and the rate of one of 4 MiB; see docs/performance.md
FAR_LATENCY, FAR_RATE = 50e-6, 0.73e9
PES = (8, 64, 1024, 8192)
SIZES = (8, 64 * KIB, 16 * MIB)
BFLOAT16 = 2
Run = Mapping[str, Any]


class Link(NamedTuple):
    """Seconds: ``latency`` for a flag, ``start`` for a put, ``gap`` for each byte of it, ``large`` for each of large puts.

    error: the largest of the fit, as a part of what was measured.
    """

    latency: float
    start: float
    gap: float
    large: float
    error: float = 0.0

    def bytes(self, nbytes: float) -> float:
        """Seconds on the link, without the start: in a collective the flags of its barrier stand for it."""
        return nbytes * (self.gap if nbytes <= LARGE else self.large)


class Machine(NamedTuple):
    """``node`` PEs reach each other by ``near``; the members of other nodes by ``far``, which all PEs of a node share."""

    near: Link
    far: Link
    node: int
    flops: float

    def nodes(self, n_pes: int) -> int:
        return -(-n_pes // self.node)


def fit(points: Sequence[tuple[float, float]], latency: float = 0.0, large: float = 0.0) -> Link:
    """Fit L + n G to (bytes, seconds) such that relative errors are small. Errors: ValueError for fewer than two points."""
    if len(points) < 2:
        raise ValueError(f"a fit needs two sizes; the run has {len(points)}")
    nbytes, seconds = np.array(points).T
    (start, gap), *_ = np.linalg.lstsq(np.stack([1 / seconds, nbytes / seconds], 1), np.ones(len(points)), rcond=None)
    start, gap = max(float(start), 0.0), max(float(gap), 0.0)
    error = float(np.max(np.abs((start + nbytes * gap) / seconds - 1)))
    return Link(latency or start, start, gap, large or gap, error)


# -- what calls take


def rounds(members: int) -> int:
    """The rounds of a barrier: one where each member writes to every other, else those of dissemination."""
    return 0 if members < 2 else 1 if members <= FLAT else math.ceil(math.log2(members))


def barrier(machine: Machine, n_pes: int) -> float:
    """Within nodes, between the first members of nodes, and within nodes again."""
    inside = rounds(min(n_pes, machine.node)) * machine.near.latency
    nodes = machine.nodes(n_pes)
    return inside if nodes < 2 else 2 * inside + math.ceil(math.log2(nodes)) * machine.far.latency


def broadcast(machine: Machine, n_pes: int, nbytes: int) -> float:
    """A binomial tree of the nodes; then the PEs of a node read it at once."""
    far = math.ceil(math.log2(machine.nodes(n_pes))) * machine.far.bytes(nbytes)
    return barrier(machine, n_pes) + far + machine.near.bytes(nbytes)


def exchange(machine: Machine, n_pes: int, nbytes: int) -> float:
    """Each PE sends ``nbytes`` to every other: fcollect and alltoall. All PEs of a node share its far link."""
    near, beyond = min(n_pes, machine.node) - 1, max(n_pes - machine.node, 0)
    far = machine.far.bytes(beyond * machine.node * nbytes) if beyond else 0.0
    return barrier(machine, n_pes) + near * machine.near.bytes(nbytes) + far


def all_reduce(machine: Machine, n_pes: int, nbytes: int) -> float:
    """Each PE combines its part and sends it to all, within the node, between nodes, and within the node again."""
    near, nodes = min(n_pes, machine.node), machine.nodes(n_pes)
    inside = 2 * (near - 1) * machine.near.bytes(nbytes / near)
    far = machine.far.bytes(2 * (nodes - 1) / nodes * nbytes) if nodes > 1 else 0.0
    return barrier(machine, n_pes) + inside + far


COLLECTIVES: dict[str, Callable[[Machine, int, int], float]] = {
    "broadcast": broadcast,
    "fcollect": exchange,
    "alltoall": exchange,
    "sum_reduce": all_reduce,
}


def operator(machine: Machine, n_pes: int, shape: tuple[int, int, int]) -> tuple[float, float]:
    """Seconds of gemm_all_gather and the flops for each byte that a PE sends: its rows of the product go to all others."""
    m, n, k = shape
    flops, nbytes = 2 * m * n * k / n_pes, m * n * BFLOAT16 / n_pes
    sent = exchange(machine, n_pes, round(nbytes)) - barrier(machine, n_pes)
    return max(flops / machine.flops, sent) + barrier(machine, n_pes), flops / (nbytes * max(n_pes - 1, 1))


# -- the run


def median(run: Run, name: str, nbytes: int = 0) -> float | None:
    """Our median of a row, or None."""
    for row in run["rows"]:
        figure = row["figures"].get(run["peers"][0], {})
        if row["row"] == name and row["bytes"] == nbytes and figure.get("samples"):
            return float(figure["median"])
    return None


def measured(run: Run, name: str) -> list[tuple[int, float]]:
    """Bytes and our seconds of a row's sweep."""
    sizes = [row["bytes"] for row in run["rows"] if row["row"] == name]
    return [(n, seconds) for n in sizes if (seconds := median(run, name, n))]


def read(runs: Sequence[Run], options: argparse.Namespace) -> tuple[Machine, Run]:
    """Fit the machine to the run of point-to-point calls. Errors: ValueError if the file has none."""
    found = {run["suite"]: run for run in runs}
    suite = next((name for name in ("gpu_pt2pt", "pt2pt") if name in found), None)
    if suite is None:
        raise ValueError(f"{options.file}: wants a run of pt2pt or gpu_pt2pt; it has {', '.join(found)}")
    run = found[suite]
    points = [(n, seconds) for n, seconds in measured(run, PUTS[suite]) if n <= LARGE]
    beyond = [seconds / n for n, seconds in measured(run, BOTH[suite]) if n > LARGE]
    flag = median(run, LATENCIES[suite], 8 if suite == "gpu_pt2pt" else 0)
    product = next((row for row in run["rows"] if row["row"].startswith("matrix product")), None)
    rate = 0.0
    if product and (seconds := median(run, product["row"])):
        rate = 2 * int(product["parameters"][0]) ** 3 / seconds
    near = fit(points, flag or 0.0, statistics.median(beyond) if beyond else 0.0)
    far = Link(options.far_latency, options.far_latency, 1 / options.far_rate, 1 / options.far_rate)
    return Machine(near, far, options.node, rate), run


def checked(machine: Machine, runs: Sequence[Run]) -> Sheet:
    """The predictions beside what the run measured."""
    lines = []
    for run in runs:
        if run["suite"] not in ("collectives", "gpu_collectives"):
            continue
        for row in run["rows"]:
            name, n_pes = row["row"].split(",")[0], row.get("pes") or run["n_pes"]
            seen = median(run, row["row"], row["bytes"])
            if seen is None or name not in (*COLLECTIVES, "barrier_all"):
                continue
            blocks = n_pes if run["suite"] == "gpu_collectives" and name == "alltoall" else 1  # of a PE's source there
            call = COLLECTIVES.get(name)
            expected = call(machine, n_pes, row["bytes"] // blocks) if call else barrier(machine, n_pes)
            times = [digits(1e6 * expected), digits(1e6 * seen), f"{expected / seen:.2f}"]
            lines.append([name, str(n_pes), size(row["bytes"]), *times])
    header = ["call", "PEs", "bytes", "predicted, µs", "measured, µs", "predicted / measured"]
    return Sheet("The model beside the run", header, lines)


def predicted(machine: Machine) -> Iterator[Sheet]:
    """Yield the predictions for PES."""
    header = ["prediction, µs", *(f"{n} PEs" for n in PES)]
    lines = [["barrier_all", *(digits(1e6 * barrier(machine, n)) for n in PES)]]
    for name, call in COLLECTIVES.items():
        for nbytes in SIZES:
            times = [digits(1e6 * call(machine, n, nbytes)) for n in PES]
            lines.append([f"{name} of {size(nbytes, 'B')}", *times])
    yield Sheet(f"Predicted, on nodes of {machine.node} PEs", header, lines)
    if machine.flops:
        header = ["gemm_all_gather, M N K", *(f"{n} PEs" for n in PES)]
        lines = [
            [f"{name}: {' '.join(map(str, shape))}", *(_part(machine, n, shape) for n in PES)]
            for name, shape in SHAPES.items()
        ]
        yield Sheet("Predicted: ms, and the part of it that the product alone takes", header, lines)


def _part(machine: Machine, n_pes: int, shape: tuple[int, int, int]) -> str:
    seconds, _ = operator(machine, n_pes, shape)
    alone = 2 * math.prod(shape) / n_pes / machine.flops
    return f"{digits(1e3 * seconds)}, {alone / seconds:.0%}"


def parameters(machine: Machine, run: Run) -> Sheet:
    near, far = machine.near, machine.far
    lines = [
        ["latency of a flag", f"{digits(1e6 * near.latency)} µs", f"{digits(1e6 * far.latency)} µs (given)"],
        ["L, of a put", f"{digits(1e6 * near.start)} µs", f"{digits(1e6 * far.start)} µs (given)"],
        [f"1 / G up to {size(LARGE, 'B')}", f"{1e-9 / near.gap:.3g} GB/s", f"{1e-9 / far.gap:.3g} GB/s a node (given)"],
        ["1 / G beyond, all PEs at once", f"{1e-9 / near.large:.3g} GB/s", ""],
        ["largest error of the fit", f"{near.error:.0%}", ""],
        ["matrix rate", f"{machine.flops / 1e12:.3g} Tflop/s", ""],
    ]
    return Sheet(f"Fitted to {run['suite']}, {run['date'][:10]}", ["", "within a node", "between nodes"], lines)


def draw(machine: Machine, folder: Path) -> Path:
    """Draw the roofline: flops a second over flops for each byte sent, with the operators at PES."""
    from benchmarks.plots import MARKS, pyplot, save

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    intensity = np.logspace(0, 6, 200)
    axes.plot(intensity, np.minimum(machine.flops, intensity / machine.near.gap), "k--", label="roof within a node")
    shared = intensity / (machine.far.gap * machine.node)
    axes.plot(intensity, np.minimum(machine.flops, shared), "k:", label="roof between nodes, a PE's share")
    for mark, n_pes in zip(MARKS, PES, strict=False):
        found = [(operator(machine, n_pes, shape), 2 * math.prod(shape) / n_pes) for shape in SHAPES.values()]
        axes.plot(
            [each[1] for each, _ in found],
            [flops / each[0] for each, flops in found],
            mark,
            label=f"predicted, {n_pes} PEs",
        )
    axes.set(xscale="log", yscale="log", xlabel="flops for each byte sent", ylabel="flop/s of a PE")
    axes.set_title("gemm_all_gather: product against communication", fontsize="medium")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    return save(figure, folder / "roofline.png")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        runs = record.read_all(options.file)
        machine, run = read(runs, options)
    except (OSError, ValueError) as error:
        print(f"benchmarks.model: {error}", file=sys.stderr)
        return 1
    sheets = [parameters(machine, run), checked(machine, runs), *predicted(machine)]
    found = [sheet for sheet in sheets if sheet.lines]
    console = Console(width=None if sys.stdout.isatty() else 160)
    for sheet in found:
        print_sheet(console, sheet)
    if options.plots and machine.flops:
        options.plots.mkdir(parents=True, exist_ok=True)
        print("drawn:", draw(machine, options.plots))
    if options.write_docs:
        replace_marked(options.write_docs, f"model of {run['suite']}", "\n\n".join(map(as_markdown, found)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("file", metavar="RUN.json", help="what python -m benchmarks --json wrote")
    parser.add_argument("--node", type=int, default=8, metavar="PES", help="PEs of a node (8)")
    parser.add_argument(
        "--far-latency", type=float, default=FAR_LATENCY, metavar="S", help=f"between nodes ({FAR_LATENCY:g})"
    )
    parser.add_argument(
        "--far-rate", type=float, default=FAR_RATE, metavar="B/S", help=f"of a node's network ({FAR_RATE:g})"
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw the roofline")
    parser.add_argument("--write-docs", metavar="PAGE", help="write the tables between the marks of 'model of SUITE'")
    return parser


if __name__ == "__main__":
    sys.exit(main())
