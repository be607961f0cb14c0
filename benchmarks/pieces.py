"""How gemm_all_gather by copy_engine is best cut into pieces: its parts alone, whole calls, and a model of them.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.pieces [SHAPE ...] [--rounds N]. SHAPE is one of
benchmarks.ops. A cut is given in proportions, as 5:2:1. All is timed as in benchmarks.ops, in graphs of eight calls.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import pyshmem as shmem
from benchmarks.figures import BOUND, Figure
from benchmarks.ops import BOUNDS, LEAD, SHAPES
from benchmarks.rows import MIB, Row
from benchmarks.runner import Effort, measure

HALVES = (1, 1)
CUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "S0": ((1,), HALVES, (2, 1, 1), (5, 2, 1), (3, 1), (6, 1, 1), (12, 3, 1), (7, 1), (4, 3, 1), (9, 5, 2), (10, 5, 1)),
    "T1": ((1,), HALVES, (1,) * 4, (2, 2, 2, 1, 1), (1, 2, 2, 2, 1), (1,) * 8, (1, 1, 2, 2, 1, 1), (1, 2, 4, 4, 3, 2),
           (1, 1, 2, 4, 4, 2, 2), (2, 2, 2, 2, 2, 2, 2, 1, 1)),
}  # fmt: skip
MORE: dict[str, tuple[tuple[tuple[int, ...], int, str], ...]] = {  # with streams to a peer, and what sends the last piece
    "S0": (((5, 2, 1), 2, "kernel"), ((5, 2, 1), 1, "engine"), ((2, 1, 1), 2, "kernel")),
    "T1": (((2, 2, 2, 1, 1), 2, "kernel"), ((1,) * 8, 2, "kernel"), ((1, 2, 2, 2, 1), 2, "kernel"),
           ((2, 2, 2, 1, 1), 1, "engine"), ((2, 2, 2, 1, 1), 3, "kernel")),
}  # fmt: skip


def modelled(figures: Mapping[str, Figure], name: str, nbytes: int) -> float | None:
    """Return the seconds of a cut by what its parts take alone. nbytes: that a PE sends to a peer.

    A copy begins when its product and the copy before it have ended, and takes its start and its bytes at the rate beside
    products. The kernel that sends the last piece follows the last product and all copies.
    """
    products, beside = figures.get(f"products {name}"), figures.get("copies beside products")
    if not (products and products.samples and beside and beside.samples):
        return None
    waves = [int(each) for each in name.split(":")]
    start = figures["kernel and copy"].median - figures["kernel"].median
    least, most = (figures[f"send {mib} MiB"].median for mib in (1, 8))
    per_byte = (most - least) / (7 * MIB)
    ended = copied = 0.0
    for wave in waves[:-1]:
        ended += products.median * wave / sum(waves)
        copied = max(ended + start, copied) + beside.median * wave / sum(waves)
    last = nbytes * waves[-1] / sum(waves)
    return max(products.median, copied) + least + (last - MIB) * per_byte


def show(shape: str, row: Row, figures: Mapping[str, Figure], nbytes: int) -> None:
    """Print every figure, and beside a cut the model's."""
    bound = figures[BOUND].median
    print(f"\n{shape} {row.parameters[2:]}: {nbytes / 1e6:.1f} MB to each peer; bound {bound * 1e6:.1f} us")
    for name, figure in figures.items():
        if not figure.samples:
            print(f"{name:40} {figure.missing or figure.wrong}")
            continue
        model = modelled(figures, name, nbytes) if ":" in name or name == "1" else None
        says = f"   model {model * 1e6:7.1f}" if model and not name.startswith("products") else ""
        part = f"{bound / figure.median:5.1%} of the bound{says}"
        print(f"{name:40} {figure.median * 1e6:8.1f} us  ±{figure.spread:4.0%}  {part}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=list(CUTS), help="S0 to T1, of benchmarks.ops")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each (5)")
    options = parser.parse_args()
    shmem.init()
    from benchmarks.accelerator import Accelerator
    from benchmarks.in_job import NO_FIGURES, InJobClock
    from benchmarks.operations.pieces import Operations

    accelerator = Accelerator()
    operations = Operations(accelerator)
    operations.ahead = LEAD / 1e3
    clock = InJobClock(operations, accelerator, False)
    speaks = shmem.my_pe() == 0
    if speaks and accelerator.interpreted:
        print(NO_FIGURES)
    for shape in options.shapes:
        cuts, more = CUTS.get(shape, CUTS["S0"]), MORE.get(shape, ())
        row = Row("pieces", shape, "parts", parameters=(cuts, more, *SHAPES[shape]), bound=BOUNDS)
        figures = measure(row, clock, Effort(0.0, options.rounds, options.rounds))
        M, N, _ = SHAPES[shape]
        if speaks:
            show(shape, row, figures, M // shmem.n_pes() * N * 2)
    operations.close(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
