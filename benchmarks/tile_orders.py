"""Tile orders of a product over a population of shapes: throughput, regret, and what the filters of pyshmem.ops eliminate.

Every policy of Stream-K++ (arXiv 2408.11417) is measured for every shape, twice: the first measurement fills a record, the
second judges its choices. Without a GPU a model of the time stands for the measurement.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import pyshmem as shmem
from benchmarks.streaming_model import HOPPER, Model
from pyshmem.ops.gemm.configurations import Configuration, configuration
from pyshmem.ops.gemm.orders.streamed import POLICIES, STREAM_K, whole_tiles
from pyshmem.ops.gemm.tuning.measuring import ProductTimer, gpu_clock, machine_name
from pyshmem.ops.gemm.tuning.population import Shape, distinct, population, tiles_of
from pyshmem.ops.gemm.tuning.record import Record, suitable
from pyshmem.ops.machine import machine

MODELLED = "There is no GPU: all times come from a model of the product. They try the method and are no figures."
CAPTION = (
    "fastest: the part of the shapes. spread: from 5 % to 95 % of the rates, by their median, of 10 GFLOP and more. "
    "regret: time beyond that of the fastest policy."
)
DTYPE = torch.bfloat16
LARGE = 1e10


class Measured(NamedTuple):
    """Seconds of policies, by shape: in the record's measurement and in the one that judges it. library: torch.matmul."""

    record: Record
    recorded: Mapping[Shape, Mapping[str, float]]
    judged: Mapping[Shape, Mapping[str, float]]
    library: Mapping[Shape, float]


class Bench:
    """What is measured, and by what."""

    def __init__(self, model: Model | None, shapes: Sequence[Shape]) -> None:
        self.shapes, self.model = shapes, model
        here = machine()
        self.row = model.row if model else configuration(here.arch, DTYPE, None)
        self.programs = model.programs if model else here.programs
        most = max(tiles_of(each, self.row) for each in shapes)
        self.timer: Any = model or ProductTimer(most, gpu_clock)
        self.name = f"a model of {self.programs} programs" if model else machine_name(DTYPE)

    def measure(self, console: Console) -> Measured:
        record = Record(self.name)
        recorded, judged, library = {}, {}, {}
        for shape in track(self.shapes, "measuring", console=console, transient=True):
            policies = list(distinct(shape, self.row, self.programs))
            recorded[shape] = self.timer(shape, DTYPE, policies)
            record.add(shape, DTYPE, recorded[shape])
            judged[shape] = self.timer(shape, DTYPE, policies)
            if not self.model:
                library[shape] = self.timer.library(shape, DTYPE)
        return Measured(record, recorded, judged, library)

    def close(self) -> None:
        if not self.model:
            self.timer.close()


def every_time(times: Mapping[str, float], shape: Shape, row: Configuration, programs: int) -> list[float]:
    """Return the seconds of all policies, those included that are equal to a measured one."""
    names = {whole: policy for policy, whole in distinct(shape, row, programs).items()}
    tiles, cut = tiles_of(shape, row), row.cuts(shape[2])
    return [times[names[whole_tiles(tiles, programs, POLICIES[name], cut)]] for name in STREAM_K]


def throughput_table(bench: Bench, found: Measured) -> Table:
    """One line for each policy, used for all shapes, for the choice among them, and for the library."""
    seconds = np.array([every_time(found.judged[each], each, bench.row, bench.programs) for each in bench.shapes])
    flops = np.array([2.0 * m * n * k for m, n, k in bench.shapes])
    best = seconds.min(axis=1)
    chosen = [found.record.candidates(shape, DTYPE)[0] for shape in bench.shapes]
    choice = np.array([found.judged[shape][policy] for shape, policy in zip(bench.shapes, chosen, strict=True)])
    table = Table(title=f"{len(bench.shapes)} shapes, {bench.name}", caption=CAPTION)
    table.add_column("order", no_wrap=True)
    for title in ("fastest", "TFLOP/s 5 %", "50 %", "95 %", "spread", "regret mean", "95 %", "most"):
        table.add_column(title, justify="right", no_wrap=True)
    for number, policy in enumerate(STREAM_K):
        won = np.mean(
            [policy == min(found.judged[shape], key=found.judged[shape].__getitem__) for shape in bench.shapes]
        )
        table.add_row(policy, f"{won:.0%}", *_figures(flops, seconds[:, number], best))
    table.add_section()
    table.add_row("the record's choice", "", *_figures(flops, choice, best))
    if found.library:
        library = np.array([found.library[shape] for shape in bench.shapes])
        table.add_row("torch.matmul", "", *_figures(flops, library, best))
    return table


def _figures(flops: Any, seconds: Any, best: Any) -> list[str]:
    rates = np.percentile(flops / seconds / 1e12, (5, 50, 95))
    regret, large = seconds / best - 1, np.percentile((flops / seconds)[flops >= LARGE], (5, 50, 95))
    spread = (large[2] - large[0]) / large[1]
    return [*(f"{rate:.0f}" for rate in rates), f"{spread:.0%}"] + [
        f"{each:.1%}" for each in (regret.mean(), np.percentile(regret, 95), regret.max())
    ]


def filter_lines(bench: Bench, found: Measured) -> list[str]:
    """What the filters answer: for the shapes that were measured, and for as many others."""
    record, shapes = found.record, bench.shapes
    pairs = len(shapes) * len(STREAM_K)
    survived = {shape: set(record.candidates(shape, DTYPE)) for shape in shapes}
    suits = {shape: set(suitable(found.recorded[shape])) for shape in shapes}
    wrong = sum(len(survived[shape] - suits[shape]) for shape in shapes)
    lost = sum(len(suits[shape] - survived[shape]) for shape in shapes)
    kept = sum(map(len, survived.values()))
    others = [each for each in population(2 * len(shapes), seed=1) if each not in survived][: len(shapes)]
    strange = sum(len(record.candidates(shape, DTYPE)) for shape in others)
    mean = kept / len(shapes)
    return [
        f"eliminated: {1 - kept / pairs:.1%} of {pairs} pairs of shape and policy; {mean:.2f} candidates a shape",
        f"unsuitable pairs that passed a filter: {wrong} of {pairs - kept + wrong}; suitable pairs that did not: {lost}",
        f"pairs of {len(others)} other shapes that passed a filter: {strange} of {len(others) * len(STREAM_K)}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tile_orders", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--shapes", type=int, default=1024, metavar="N", help="the size of the population")
    parser.add_argument("--quick", action="store_true", help="32 shapes")
    parser.add_argument("--model", action="store_true", help="the model of the time, also where there is a GPU")
    parser.add_argument("--json", metavar="FILE", help="write the record to FILE, for ops.tuning.load")
    options = parser.parse_args()
    shmem.init()
    shapes = population(32 if options.quick else options.shapes)
    bench = Bench(HOPPER if options.model or not torch.cuda.is_available() else None, shapes)
    found = bench.measure(Console(stderr=True))
    console = Console(width=None if sys.stdout.isatty() else 120)
    if bench.model:
        console.print(MODELLED, style="bold")
    console.print(throughput_table(bench, found))
    for line in filter_lines(bench, found):
        console.print(line, highlight=False)
    if options.json:
        found.record.save(options.json)
    bench.close()
    shmem.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
