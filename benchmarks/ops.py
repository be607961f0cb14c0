"""Products with their communication, by every schedule, beside torch's ways and the bound, in one job.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.ops [--only TEXT ...] [--json FILE]
[--plots FOLDER] [--timeline FILE] [--lead MS]. All but torch's fused operators is timed in CUDA graphs of eight calls. The
bound is the slower of the library's product alone and of the copy engine with as many bytes as the operator sends, in this
run. Results are compared with sums in float64.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import timeline
from benchmarks.command import Suite
from benchmarks.figures import BOUND, Report
from benchmarks.in_job import main
from benchmarks.rows import Goal, Row, at_most, rate, times
from benchmarks.runner import Effort

SHAPES = {  # M, N, K
    "S0": (4096, 4096, 12288),
    "S1": (4096, 3584, 14336),
    "S2": (4096, 4608, 36864),
    "S3": (4096, 8192, 28672),
    "T0": (8192, 8192, 4096),
    "T1": (16384, 4096, 2048),
}
FOUR = {name: (8192, N, K) for name, (_, N, K) in SHAPES.items() if name[0] == "S"}
BOUNDS = ("GEMM alone", "copy engine")
NCCL = "GEMM, then NCCL"
LEAD = 10.0  # milliseconds


def percent(least: float) -> tuple[Goal, ...]:
    return (Goal(100 / least, BOUND, f"≥ {least:g} % of the bound"),)


def faster(factor: float) -> tuple[Goal, ...]:
    return (rate(factor, NCCL),)


# operator and split: goals on two H200s, in the order of SHAPES
GOALS: dict[tuple[str, str], list[tuple[Goal, ...]]] = {
    ("gemm_all_gather", "rows"): [*map(percent, (93, 96, 96, 97, 91, 86))],
    ("gemm_all_gather", "columns"): [*map(percent, (90, 93, 93, 94, 88, 83))],
    ("all_gather_gemm", "rows"): [*map(percent, (95, 98, 98, 98, 97, 94))],
    ("gemm_reduce_scatter", "rows"): [*map(percent, (88, 90, 95, 96, 85, 75))],
    ("gemm_all_reduce", "rows"): [faster(1.2), faster(1.2), (), (), faster(1.35), faster(1.35)],
}
# the same on four H200s with NVLink, against NCCL without multicast, in the order of FOUR
GOALS_OF_FOUR = {
    ("gemm_all_gather", "rows"): (1.39, 1.43, 1.18, 1.21),
    ("all_gather_gemm", "rows"): (1.61, 1.64, 1.74, 1.82),
    ("gemm_reduce_scatter", "rows"): (1.52, 1.42, 1.19, 1.24),
}


def _name(operator: str, split: str) -> str:
    return f"{operator} by columns" if split == "columns" else operator


EIGHT_BITS = ("S0", "S3", "T1")  # the shapes of rows of 8-bit floats

ROWS = (
    *(
        Row(_name(*called), f"{_name(*called)} {shape}", "product", parameters=(*called, *sizes), goals=goals, bound=BOUNDS)
        for called, every in GOALS.items()
        for (shape, sizes), goals in zip(SHAPES.items(), every, strict=True)
    ),
    *(
        Row("Four GPUs", f"{_name(*called)} {shape}, M = {sizes[0]}", "product", parameters=(*called, *sizes),
            goals=faster(goal), bound=BOUNDS, least_pes=4)
        for called, every in GOALS_OF_FOUR.items()
        for (shape, sizes), goal in zip(FOUR.items(), every, strict=True)
    ),
    *(
        Row(f"fp8 {_name(*called)}", f"fp8 {_name(*called)} {shape}", "scaled_product",
            parameters=(*called, *SHAPES[shape]), bound=BOUNDS)
        for called in GOALS
        for shape in EIGHT_BITS
    ),
    *(
        Row("Small batches", f"gemm_all_reduce M = {M}", "product", parameters=("gemm_all_reduce", "rows", M, 8192, 28672),
            goals=(times(1.045, BOUNDS[0]),), bound=BOUNDS)
        for M in (1, 16, 64)
    ),
    *(
        Row("Host", f"{_name(*called)}, a call's issue", "host_cost", parameters=(*called, 512, 512, 512),
            goals=(at_most(8e-6),))
        for called in GOALS
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Pictured(Suite):
    """A suite that can draw its figures."""

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        parser = super().parser(description)
        parser.add_argument(
            "--plots", metavar="FOLDER", type=Path, help="draw times against the bound, and timelines of the first row"
        )
        parser.add_argument(
            "--timeline", metavar="FILE", type=Path,
            help="what the GPU did in a call of the first row by each schedule: .png, or .json for benchmarks.timeline",
        )  # fmt: skip
        parser.add_argument(
            "--lead", metavar="MS", type=float, default=LEAD,
            help=f"milliseconds of untimed calls before each sample, so that all ways find the GPU as warm ({LEAD:g})",
        )  # fmt: skip
        return parser

    def run(
        self, clock: Any, options: argparse.Namespace, report: Report, speaks: bool = True, agreed: Any = float
    ) -> int:
        clock.operations.ahead = options.lead / 1e3
        status = super().run(clock, options, report, speaks, agreed)
        bounded = [row for row in report.results if row.bound]
        if (options.plots or options.timeline) and bounded:
            row = bounded[0]
            spans = clock.operations.timelines(row.nbytes, *row.parameters)
            if speaks:
                _draw(report, row, spans, options)
        return status


def _draw(report: Report, row: Row, spans: dict[str, Any], options: argparse.Namespace) -> None:
    drawn = []
    if options.plots:
        from benchmarks import plots

        options.plots.mkdir(parents=True, exist_ok=True)
        drawn += plots.times(report, options.plots)
    for path in [options.timeline, options.plots and options.plots / "timeline.png"] if spans else []:
        if path:
            drawn.append(timeline.write(f"{row.name}: PE 0 of {report.n_pes}", spans, path))
    print("drawn:", *drawn)


SUITE = Pictured("ops", ROWS, full=Effort(0.0, 7, 11), quick=Effort(0.0, 2, 2))

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
