"""What ``auto`` chooses, over shapes of many kinds, beside bulk_synchronous, than which it should never be slower.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.schedules [OPERATOR ...] [--all] [--rounds N].
All is timed as in benchmarks.ops, in graphs of eight calls.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import pyshmem as shmem
from benchmarks.figures import Figure
from benchmarks.ops import CALLED, LEAD, _name
from benchmarks.rows import Row
from benchmarks.runner import Effort, measure

# M, N, K and type. Lengths that PEs divide are multiples of 8 PEs, but for those of which a PE has an odd number.
SHAPES = (
    (512, 512, 512, "bfloat16"),
    (1024, 1024, 1024, "bfloat16"),
    (2048, 2048, 2048, "bfloat16"),
    (512, 8192, 4096, "bfloat16"),
    (8192, 512, 4096, "bfloat16"),
    (2048, 8192, 8192, "bfloat16"),
    (16384, 2048, 1024, "bfloat16"),
    (4098, 4098, 4098, "bfloat16"),  # odd numbers of all on two PEs
    (4096, 4098, 4096, "bfloat16"),
    (4096, 4096, 4098, "bfloat16"),
    (4096, 4096, 4096, "float16"),
    (4096, 4096, 4096, "float32"),
)
AUTO, PLAIN = "pyshmem", "bulk_synchronous"
SLACK = 1.03


def line_of(operator: str, shape: tuple[int, int, int, str], figures: Mapping[str, Figure]) -> str:
    """Return a line for a row: what auto chose, its time, and the others' as multiples of it."""
    auto = figures[AUTO]
    if not auto.samples:
        return f"{operator} {shape}: {auto.missing or auto.wrong}"
    others = [
        f"{name} {figure.median / auto.median:.2f}"
        for name, figure in figures.items()
        if name != AUTO and figure.samples
    ]
    M, N, K, dtype = shape
    said = auto.statement.split(",")[0]
    return f"{operator:26} {M:6}{N:6}{K:6} {dtype:9}{said:17}{auto.median * 1e6:8.1f} us  {', '.join(others)}"


def slower(figures: Mapping[str, Figure]) -> float:
    """Return the time of auto as a multiple of bulk_synchronous's."""
    return figures[AUTO].median / figures[PLAIN].median


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    names = {_name(*called): called for called in CALLED}
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", default=list(names), help=", ".join(names))
    parser.add_argument("--all", action="store_true", help="time the other schedules, too")
    parser.add_argument("--rounds", type=int, default=3, help="samples of each (3)")
    options = parser.parse_args()
    shmem.init()
    from benchmarks.accelerator import Accelerator
    from benchmarks.in_job import NO_FIGURES, InJobClock
    from benchmarks.operations.schedules import Operations

    accelerator = Accelerator()
    operations = Operations(accelerator, not options.all)
    operations.ahead = LEAD / 1e3
    clock, speaks = InJobClock(operations, accelerator, False), shmem.my_pe() == 0
    if speaks and accelerator.interpreted:
        print(NO_FIGURES)
    effort, ratios = Effort(0.0, options.rounds, options.rounds), []
    for name in options.operators:
        for shape in SHAPES:
            figures = measure(Row("schedules", name, "choices", parameters=(*names[name], *shape)), clock, effort)
            if speaks:
                print(line_of(name, shape, figures), flush=True)
            if figures[AUTO].samples and figures[PLAIN].samples:
                ratios.append(slower(figures))
    if speaks:
        late = [ratio for ratio in ratios if ratio > SLACK]
        print(f"slower than {PLAIN} by more than 3 %: {len(late)} of {len(ratios)}, the worst {max(ratios):.2f}")
    operations.close(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
