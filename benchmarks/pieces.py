"""How gemm_all_gather by copy_engine is best cut into pieces: its parts alone, whole calls, and a model of them.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.pieces [SHAPE ...] [--rounds N]. SHAPE is one of
benchmarks.ops. A cut is given in proportions, as 5:2:1. All is timed as in benchmarks.ops, in graphs of eight calls.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import pyshmem as shmem
from benchmarks.figures import Figure
from benchmarks.ops import LEAD, SHAPES
from benchmarks.rows import MIB, Row
from benchmarks.runner import Effort, measure

TRIALS: dict[str, tuple[tuple[int, ...], ...]] = {  # of the rows that a PE multiplies
    "S0": ((1,), (1, 1), (3, 1), (2, 1, 1), (4, 3, 1), (5, 2, 1), (6, 1, 1), (7, 1)),
    "T1": ((1,), (1, 1), (1,) * 4, (2, 2, 2, 1, 1), (1,) * 8),
}
Figures = Mapping[str, Figure]


def rate_beside(parts: Figures, nbytes: int) -> float:
    """Return the bytes per second of copies beside products. nbytes: of a turn of copies."""
    alone = nbytes / parts["copy engine"].median
    products = next(parts[name].median for name in parts if name.endswith("products"))
    name = list(parts)[-1]
    taken, turns = parts[name].median, int(name.split()[1])
    return (turns * nbytes - (taken - products) * alone) / products


def modelled(name: str, wholes: Figures, parts: Figures, nbytes: int) -> float:
    """Return the seconds of a cut by what its parts take alone. nbytes: that a PE sends to a peer.

    A copy begins when its product and the copy before it have ended, and takes its start and its bytes at the rate beside
    products. The kernel that sends the last piece follows the last product and all copies.
    """
    products, rate = wholes[f"products {name}"].median, rate_beside(parts, nbytes)
    shares = [int(each) for each in name.split(":")]
    start = parts["kernel and copy"].median - parts["kernel"].median
    least, most = (parts[f"send {mib} MiB"].median for mib in (1, 8))
    per_byte = (most - least) / (7 * MIB)
    ended = copied = 0.0
    for share in shares[:-1]:
        ended += products * share / sum(shares)
        copied = max(ended + start, copied) + nbytes * share / sum(shares) / rate
    return max(products, copied) + least + (nbytes * shares[-1] / sum(shares) - MIB) * per_byte


def show(shape: str, wholes: Figures, parts: Figures, nbytes: int, figures: bool) -> None:
    """Print every figure, and beside a cut the model's."""
    bound = max(wholes["GEMM alone"].median, parts["copy engine"].median)
    print(f"\n{shape} {SHAPES[shape]}: {nbytes / 1e6:.1f} MB to each peer; bound {bound * 1e6:.1f} us")
    for name, figure in (*parts.items(), *wholes.items()):
        if not figure.samples:
            print(f"{name:32} {figure.missing or figure.wrong}")
            continue
        says = f"{bound / figure.median:6.1%} of the bound" if name in wholes else ""
        if figures and f"products {name}" in wholes:
            says += f"   model {modelled(name, wholes, parts, nbytes) * 1e6:7.1f}"
        print(f"{name:32} {figure.median * 1e6:8.1f} us  ±{figure.spread:4.0%}  {says}")
    if figures:
        print(f"{'copies beside products':32} {rate_beside(parts, nbytes) / 1e9:8.1f} GB/s")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=list(TRIALS), help="S0 to T1, of benchmarks.ops")
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
        effort, sizes = Effort(0.0, options.rounds, options.rounds), SHAPES[shape]
        # in turn with products alone: short kernels let the GPU cool, and the product that follows them is faster
        wholes = measure(
            Row("pieces", shape, "wholes", parameters=(TRIALS.get(shape, TRIALS["S0"]), *sizes)), clock, effort
        )
        parts = measure(Row("pieces", shape, "parts", parameters=sizes), clock, effort)
        if speaks:
            show(shape, wholes, parts, sizes[0] // shmem.n_pes() * sizes[1] * 2, not accelerator.interpreted)
    operations.close(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
