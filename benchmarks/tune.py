"""Measure which kernel, or copy engine, is the fastest for collectives on a stream of each size, and write pyshmem's table.

Run: `pyshmem tune`, which starts it on 2 GPUs and then on all; or pyshmemrun -n 2 -m benchmarks.tune [--write FILE]
It measures the rows of reductions of two PEs on 2 PEs and those of other teams on more, and the rows of copies: how many
programs, and from which size on copy engines are faster (engine="auto"). Other rows are those of the table in use. Without
--write the file is in the user's cache folder, from where init reads it; PYSHMEM_TUNING names another one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable
from datetime import date
from itertools import groupby

import torch

import pyshmem as shmem
from benchmarks.rows import KIB, MIB
from pyshmem.host.collectives import context_of
from pyshmem.kernels.method_tables import (
    APART,
    COPY,
    HALVES,
    MORE,
    SENT,
    WORDS,
    Row,
    Tables,
    architecture,
    cache_file,
    tables,
    use,
    write,
)  # fmt: skip
from pyshmem.kernels.plans import kernels as planner
from pyshmem.kernels.plans import known
from pyshmem.ops.gemm import tuning
from pyshmem.ops.gemm.record import population

# the largest sizes of rows; each is measured at this size
SIZES = (128, 4 * KIB, 32 * KIB, 160 * KIB, 256 * KIB, 768 * KIB, 1536 * KIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
TILES = [Row(MORE, WORDS, words, words // 32) for words in (32, 64, 128, 256)]
BLOCKS = [Row(MORE, SENT, nbytes, warps) for nbytes in (2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB) for warps in (4, 8)]
GRIDS = [(programs, warps) for programs in (32, 64, 128, 256) for warps in (4, 8, 16) if programs * warps <= 2048]
SHARES = [Row(MORE, kind, *grid) for kind in (HALVES, APART) for grid in GRIDS]
LAST = (Row(MORE, APART, 128, 8),)
BLOCK_SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)  # bytes to each PE
COPIES = [Row(MORE, "", *grid) for grid in ((8, 8), (32, 8), (32, 16), (64, 8), (64, 16), (128, 8), (128, 16))]
ROUNDS, SLACK = 7, 0.01  # a row that is so much faster than the one before it begins a new one
Measure = Callable[[Row, int], float]


def candidates(nbytes: int) -> list[Row]:
    """The rows of reductions that may be the fastest."""
    found = [row for row in TILES if nbytes <= 1024 * row.size]
    found += [row for row in BLOCKS if nbytes <= 256 * row.size and nbytes > 16 * KIB]
    return found + (SHARES if nbytes >= 128 * KIB else [])


def copies(nbytes: int) -> list[Row]:
    """Return the rows of copies that may be the fastest; that of copy engines has size 1."""
    return [Row(MORE, COPY, 1, 1), *COPIES]


def microseconds(call: Callable[[], object], calls: int) -> float:
    """The time of a call in a graph of many, on the slowest PE."""
    call()
    torch.cuda.synchronize()
    shmem.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            call()
    samples = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        shmem.barrier_all()
        graph.replay()  # the PEs meet in it
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3 / calls)
    slowest = torch.tensor([statistics.median(samples)], dtype=torch.float64, device="cpu")
    shmem.reduce(slowest, slowest.clone(), "max")
    return float(slowest)


def table_of(
    measure: Measure, sizes: Iterable[int] = SIZES, candidates: Callable[[int], list[Row]] = candidates
) -> tuple[Row, ...]:
    """The fastest row of each size, equal neighbours joined. The last one is for all larger sizes too.

    Where copy engines are the fastest, the row is that of the fastest kernel, with the kind COPY.
    """
    rows: list[Row] = []
    for nbytes in sizes:
        times = {row: measure(row, nbytes) for row in candidates(nbytes)}
        engines = [times.pop(row) for row in list(times) if row.kind == COPY]
        best = min(times, key=times.__getitem__)
        before = rows[-1]._replace(most=MORE, kind=best.kind if engines else rows[-1].kind) if rows else None
        if before in times and times[before] <= times[best] * (1 + SLACK):
            best = before
        said = f"{nbytes:>10} bytes: {times[best]:8.2f} us, {best.kind} {best.size} x {best.warps}"
        if engines:
            said += f"; copy engines {engines[0]:.2f}"
        if engines and engines[0] < times[best]:
            best = best._replace(kind=COPY)
        rows.append(best._replace(most=nbytes))
        if shmem.my_pe() == 0:
            print(said, flush=True)
    return (*joined(rows)[:-1], joined(rows)[-1]._replace(most=MORE))


def joined(rows: Iterable[Row]) -> list[Row]:
    """Return the last of equal neighbours."""
    return [list(equal)[-1] for _, equal in groupby(rows, key=lambda row: row[1:])]


class Tuner:
    """Measures a row by making it the only one of its table."""

    def __init__(self) -> None:
        self.before, self.name = tables(), "pairs" if shmem.n_pes() == 2 else "teams"
        self.target, self.source = (shmem.zeros(max(SIZES) // 2, dtype=torch.bfloat16) for _ in range(2))

    def reduction(self, row: Row, nbytes: int) -> float:
        self._only(self.name, (row, *LAST))
        return microseconds(
            lambda: shmem.reduce_on_stream(self.target, self.source, size=nbytes // 2), 20 if nbytes <= 8 * MIB else 2
        )

    def copy(self, row: Row, nbytes: int) -> float:
        """The time of an fcollect and an alltoall, of ``nbytes`` to each PE."""
        self._only("copies", (row,))

        def call() -> None:
            shmem.fcollect_on_stream(self.target, self.source, nbytes // 2, engine="auto")
            shmem.alltoall_on_stream(self.target, self.source, nbytes // 2, engine="auto")

        return microseconds(call, 20 if nbytes <= 4 * MIB else 2)

    def compile(self) -> None:
        """Compile the kernels of all reductions: each PE a part of them. Then all load what is in Triton's cache."""
        kernels = {}
        for nbytes in SIZES:
            for row in candidates(nbytes):
                kernels[row._replace(size=0) if row.kind in (HALVES, APART) else row] = row, nbytes
        for row, nbytes in list(kernels.values())[shmem.my_pe() :: shmem.n_pes()]:
            self._only(self.name, (row, *LAST))
            context = context_of(shmem.TEAM_WORLD)
            planner().reduction(context, shmem.n_pes(), "sum", torch.bfloat16, nbytes // 2, True)
        shmem.barrier_all()

    def _only(self, name: str, rows: tuple[Row, ...]) -> None:
        use(self.before._replace(**{name: rows}))
        known.clear()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", metavar="FILE", help="the file; by default the user's, from where init reads it")
    parser.add_argument("--orders", type=int, default=0, metavar="SHAPES", help="tile orders too, of so many products")
    options = parser.parse_args()
    shmem.init()
    if not torch.cuda.is_available() or shmem.n_pes() < 2:
        raise SystemExit("benchmarks.tune: expected 2 PEs or more, each with a GPU")
    tuner = Tuner()
    tuner.compile()
    found: Tables = tuner.before._replace(
        **{tuner.name: table_of(tuner.reduction), "copies": table_of(tuner.copy, BLOCK_SIZES, copies)}
    )
    file = options.write or cache_file(architecture())
    if shmem.my_pe() == 0:
        gpus = f"{shmem.n_pes()} x {torch.cuda.get_device_name()}, {architecture()}"
        write(file, f"{tuner.name} and copies on {gpus}, {date.today()}", found)
        print(f"wrote {file}", flush=True)
    if options.orders:
        orders = tuning.cached(torch.bfloat16)
        tuning.tune(population(options.orders), path=orders)
        if shmem.my_pe() == 0:
            print(f"wrote {orders}", flush=True)
    shmem.barrier_all()
    shmem.finalize()


if __name__ == "__main__":
    main()
