"""SpMV over all PEs with a plan that is used again and again, beside the same product on one PE.

Run: pyshmemrun -n 2 -m benchmarks.irregular_plans [--atoms N] [--json FILE]. Each PE times the product of the whole matrix,
and the plan's with both ways to fetch, in CUDA graphs that begin together; the times are those of the slowest PE. Results
are compared with those of one PE before. least: the one PE's time divided by the PEs, and the bytes of the elements that a
PE fetches at 450 GB/s, the rate of NVLink 4 in one direction. Without GPUs it only tries the method.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import pyshmem as shmem
from benchmarks import record
from benchmarks.irregular import NO_FIGURES, Clock
from benchmarks.matrices import Recipe, varied
from pyshmem import irregular

FAMILIES = ("banded", "mesh 3-D", "blocks", "uniform", "power law")
FETCHES = ("needed", "whole")
SEGMENTS = 64  # with more gets in each product, fetch="needed" is not timed
LINK = 450e9  # bytes a second
CALLS, ROUNDS = 6, 7  # an even number of products in a graph: a plan's vectors alternate
TOLERANCE = 1e-4


class Together(Clock):
    """A clock that all PEs start together."""

    def ready(self, cycles: int) -> None:
        shmem.barrier_all()
        super().ready(cycles)
        shmem.barrier_on_stream()


def slowest(seconds: float) -> float:
    """Return the most of all PEs."""
    mine = shmem.full(1, seconds, dtype=torch.float64)
    most = shmem.empty_like(mine)
    shmem.max_reduce(most, mine)
    return float(most[0])


def measure(recipe: Recipe, clock: Clock) -> dict[str, Any]:
    """Return the seconds of one matrix by "one PE" and every way to fetch, with what it looks like."""
    n_pes, me = shmem.n_pes(), shmem.my_pe()
    made = recipe.make("cuda" if clock.gpu else "cpu")
    whole, x = irregular.csr(made), varied(made.shape[1], made.device)
    wanted = irregular.spmv(whole, x)
    found: dict[str, Any] = {"matrix": recipe.name, "atoms": whole.atoms, "rows": whole.rows}
    found["one PE"] = slowest(clock.seconds({"": partial(irregular.spmv, whole, x)}, CALLS)[""])
    for fetch in FETCHES:
        plan = irregular.plan(whole, fetch=fetch)
        first, end = plan.starts[me], plan.starts[me + 1]
        if fetch == "needed":
            found["segments"], found["fetched"] = (int(slowest(each)) for each in (len(plan.segments), plan.fetched))
        if fetch != "needed" or found["segments"] <= SEGMENTS:
            mine = x[first:end].clone()
            got = plan(mine)
            torch.testing.assert_close(got, wanted[first:end], rtol=TOLERANCE, atol=0)
            shmem.barrier_all()
            found[fetch] = slowest(clock.seconds({"": partial(plan, mine)}, CALLS)[""])
        plan.close()
    found["least"] = found["one PE"] / n_pes + found["fetched"] * 4 / LINK
    return found


def table(every: list[dict[str, Any]]) -> Table:
    """One line for each matrix."""
    made = Table(title=f"SpMV over {shmem.n_pes()} PEs: µs of a product, and speedup over one PE")
    for title in ("matrix", "non-zeros", "rows", "segments", "fetched", "one PE", "least", *FETCHES, "best speedup"):
        made.add_column(title, justify="right")
    for each in every:
        times = [each[fetch] for fetch in FETCHES if fetch in each]
        cells = [f"{each[name] * 1e6:.1f}" if name in each else "-" for name in ("one PE", "least", *FETCHES)]
        counts = [f"{each[name]:,}" for name in ("atoms", "rows", "segments", "fetched")]
        made.add_row(each["matrix"], *counts, *cells, f"{each['one PE'] / min(times):.2f}")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--atoms", type=int, nargs="+", default=(5_000_000, 40_000_000), metavar="N")
    parser.add_argument("--json", metavar="FILE", help="write the times to FILE")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse ")  # torch calls its CSR tensors beta
    shmem.init()
    clock = Together(ROUNDS)
    sizes = options.atoms if clock.gpu else (40,)
    recipes = [Recipe(family, family, atoms, 1) for atoms in sizes for family in FAMILIES]
    every = [measure(each, clock) for each in recipes]
    if shmem.my_pe() == 0:
        console = Console(width=None if sys.stdout.isatty() else 160)
        if not clock.gpu:
            console.print(NO_FIGURES, style="bold")
        console.print(table(every))
        if options.json:
            facts = {"benchmark": "irregular_plans", "PEs": shmem.n_pes(), **record.facts(), "matrices": every}
            Path(options.json).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    shmem.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
