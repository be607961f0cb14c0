"""Measure which kernel is the fastest for collectives on a stream of each size, and write the table that pyshmem then uses.

Run, from a checkout with pyshmem built in it, on all GPUs of a machine: pyshmemrun -n 2 -m benchmarks.tune [--write FILE]
It measures the rows of reductions of two PEs on 2 PEs and those of other teams on more; the rest is as it was.
Without --write the file is in the user's cache folder, from where init reads it; PYSHMEM_TUNING names another one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable

import torch

import pyshmem as shmem
from benchmarks.rows import KIB, MIB
from pyshmem.kernels.plans import known
from pyshmem.kernels.tables import (
    APART,
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

# the largest sizes of rows; each is measured at this size
SIZES = (128, 4 * KIB, 32 * KIB, 160 * KIB, 256 * KIB, 768 * KIB, 1536 * KIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
TILES = [Row(MORE, WORDS, words, words // 32) for words in (32, 64, 128, 256)]
BLOCKS = [Row(MORE, SENT, nbytes, warps) for nbytes in (2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB) for warps in (4, 8, 16)]
GRIDS = [(programs, warps) for programs in (32, 64, 128, 256) for warps in (4, 8, 16) if programs * warps <= 2048]
SHARES = [Row(MORE, kind, *grid) for kind in (HALVES, APART) for grid in GRIDS]
LAST = (Row(MORE, APART, 128, 8),)
ROUNDS, SLACK = 7, 0.01  # a row that is so much faster than the one before it begins a new one


def candidates(nbytes: int) -> list[Row]:
    """The rows that may be the fastest."""
    found = [row for row in TILES if nbytes <= 1024 * row.size]
    found += [row for row in BLOCKS if nbytes <= 256 * row.size and nbytes > 16 * KIB]
    return found + (SHARES if nbytes >= 128 * KIB else [])


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


def table_of(measure: Callable[[Row, int], float], sizes: Iterable[int] = SIZES) -> tuple[Row, ...]:
    """The fastest row of each size, equal neighbours joined. The last one is for all larger sizes too."""
    rows: list[Row] = []
    for nbytes in sizes:
        times = {row: measure(row, nbytes) for row in candidates(nbytes)}
        best = min(times, key=times.__getitem__)
        before = rows[-1]._replace(most=MORE) if rows else None
        if before in times and times[before] <= times[best] * (1 + SLACK):
            best = rows.pop()
        rows.append(best._replace(most=nbytes))
        if shmem.my_pe() == 0:
            taken = times[best._replace(most=MORE)]
            print(f"{nbytes:>10} bytes: {taken:8.2f} us, {best.kind} {best.size} x {best.warps}", flush=True)
    return (*rows[:-1], rows[-1]._replace(most=MORE))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", metavar="FILE", help="the file; by default the user's, from where init reads it")
    options = parser.parse_args()
    shmem.init()
    if not torch.cuda.is_available() or shmem.n_pes() < 2:
        raise SystemExit("benchmarks.tune: wants 2 PEs or more, each with a GPU")
    before, pairs = tables(), shmem.n_pes() == 2
    target, source = (shmem.zeros(max(SIZES) // 2, dtype=torch.bfloat16) for _ in range(2))

    def measure(row: Row, nbytes: int) -> float:
        rows = (row, *LAST)
        use(before._replace(**{"pairs" if pairs else "teams": rows}))
        known.clear()
        return microseconds(
            lambda: shmem.reduce_on_stream(target, source, size=nbytes // 2), 20 if nbytes <= 8 * MIB else 2
        )

    rows = table_of(measure)
    found: Tables = before._replace(**{"pairs" if pairs else "teams": rows})
    file = options.write or cache_file(architecture())
    if shmem.my_pe() == 0:
        write(file, f"{torch.cuda.get_device_name()}, {architecture()}, {shmem.n_pes()} PEs", found)
        print(f"wrote {file}")
    shmem.barrier_all()
    shmem.finalize()


if __name__ == "__main__":
    main()
