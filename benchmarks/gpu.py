"""The calls on GPU heaps beside the copy engine, the driver's own calls and kernels written by hand, in one job.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.gpu [--only TEXT ...] [--json FILE]
Prints a table: figure, what it is compared with, their ratio and the goal. Every transfer is checked before it is timed.
Machines are shared and GPUs warm up: the ratio counts, of medians over rounds that go from one to the other.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from mpi4py import MPI
from rich.console import Console
from rich.table import Table

import pyshmem as shmem
from benchmarks import gpu_kernels as kernels
from pyshmem.runtime.gpu import opening
from pyshmem.runtime.gpu.launch import CachedKernel
from pyshmem.runtime.heap import heaps

ROUNDS = 9
MIB = 1 << 20
BYTES = 256 * MIB


@dataclass(frozen=True)
class Row:
    """``ours`` and ``other`` give a figure of this PE: seconds, or bytes per second where ``unit`` is GB/s."""

    name: str
    unit: str
    ours: Callable[[], float]
    against: str = ""
    other: Callable[[], float] | None = None
    goal: str = ""


class Bench:
    """The arrays, and the ways to time."""

    def __init__(self) -> None:
        self.me, self.n = shmem.my_pe(), shmem.n_pes()
        self.peer = (self.me + 1) % self.n
        self.heap = heaps["cuda"]
        self.context = shmem.device_context()
        self.stream = torch.cuda.current_stream()
        self.target = shmem.zeros(BYTES // 4, dtype=torch.int32)
        self.source = torch.empty(BYTES // 4, dtype=torch.int32, device="cuda").random_()
        self.there = shmem.ptr(self.target, self.peer)
        self.word, self.flag = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
        self.one = torch.ones(1, dtype=torch.int64, device="cuda")
        self.turn = 1

    def rate(self, action: Callable[[], None], nbytes: int = BYTES, repeats: int = 5, everybody: bool = False) -> float:
        """Bytes per second of ``action``, by events: of PE 0 alone, or of each when all begin together."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        active = everybody or self.me == 0
        for timed in (False, True):
            shmem.barrier_all()
            start.record()
            for _ in range(repeats if timed and active else int(active)):
                action()
            end.record()
        shmem.barrier_all()
        return nbytes * repeats / (start.elapsed_time(end) / 1e3) if active else math.inf

    def issue(self, action: Callable[[], object], repeats: int = 100) -> float:
        """Seconds of the host for one call."""
        action()
        shmem.barrier_all()
        begin = time.perf_counter()
        for _ in range(repeats):
            action()
        taken = time.perf_counter() - begin
        shmem.barrier_all()
        return taken / repeats

    def check_put(self, action: Callable[[], None]) -> None:
        """``action`` must bring our source to the peer."""
        self.target.fill_(-1)
        shmem.barrier_all()
        action()
        shmem.barrier_all()
        assert torch.equal(self.there, self.source), "the peer does not hold what was put"
        shmem.barrier_all()

    # ---- what is timed ----

    def by_copy_engine(self) -> None:
        self.heap.driver.copy(self.there.data_ptr(), self.source.data_ptr(), BYTES, self.stream.cuda_stream)

    def put(self) -> None:
        shmem.put(self.target, self.source, self.peer)

    def get_by_copy_engine(self) -> None:
        self.heap.driver.copy(self.source.data_ptr(), self.there.data_ptr(), BYTES, self.stream.cuda_stream)

    def put_by_kernel(self, programs: int) -> Callable[[], None]:
        kernel = CachedKernel(kernels.put_shares)
        return lambda: kernel((programs,), self.context, self.target, self.source, BYTES // 4, self.peer, num_warps=8)

    def get_by_kernel(self, programs: int) -> Callable[[], None]:
        kernel = CachedKernel(kernels.get_shares)
        return lambda: kernel((programs,), self.context, self.source, self.target, BYTES // 4, self.peer, num_warps=8)

    def ping_pong(self, rounds: int = 2000) -> float:
        """Seconds of one way."""
        return self._back_and_forth(
            rounds,
            lambda: kernels.ping_pong[(1,)](self.context, self.flag, self.turn, rounds, num_warps=1),
        )

    def ping_pong_by_hand(self, rounds: int = 2000) -> float:
        words = self.flag.view(torch.int64)
        there = shmem.ptr(self.flag, 1 - self.me).view(torch.int64) if self.me < 2 else words
        return self._back_and_forth(
            rounds,
            lambda: kernels.ping_pong_by_hand[(1,)](words, there, self.turn, rounds, ME=self.me, num_warps=1),
        )

    def _back_and_forth(self, rounds: int, launch: Callable[[], object]) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for timed in (False, True):
            shmem.barrier_all()
            if timed:
                start.record()
            if self.me < 2:
                launch()
            end.record()
            self.turn += rounds
            shmem.barrier_all()
        return start.elapsed_time(end) / 1e3 / rounds / 2 if self.me < 2 else 0.0


def rows(bench: Bench) -> list[Row]:
    b = bench
    copies = ("copy engine", lambda: b.rate(b.by_copy_engine))
    gets = ("copy engine", lambda: b.rate(b.get_by_copy_engine))
    found = [Row("host put 256 MiB", "GB/s", lambda: b.rate(b.put), *copies, "1.00")]
    for programs in (32, 64, 132, 264, 528):
        goal = "0.85" if programs == 64 else "0.92" if programs > 132 else ""
        put, get = b.put_by_kernel(programs), b.get_by_kernel(programs)
        b.check_put(put)
        found.append(Row(f"put, {programs} programs", "GB/s", lambda put=put: b.rate(put), *copies, goal))
        found.append(Row(f"get, {programs} programs", "GB/s", lambda get=get: b.rate(get), *gets, goal))
    put, get = b.put_by_kernel(264), b.get_by_kernel(264)
    found += [
        Row("put, all PEs at once", "GB/s", lambda: b.rate(put, everybody=True), "copy engine",
            lambda: b.rate(b.by_copy_engine, everybody=True)),
        Row("get, all PEs at once", "GB/s", lambda: b.rate(get, everybody=True), "copy engine",
            lambda: b.rate(b.get_by_copy_engine, everybody=True)),
    ]  # fmt: skip
    if b.n > 2:
        found += to_all_rows(b)
    raw = b.heap.driver.copy
    word, there, stream = b.one.data_ptr(), shmem.ptr(b.word, b.peer).data_ptr(), b.stream.cuda_stream
    small, quick = torch.zeros(16, dtype=torch.int32, device="cuda"), CachedKernel(kernels.nothing)
    found += [
        Row("signal, one way", "us", b.ping_pong, "by hand", b.ping_pong_by_hand, "1.00; 1.30 us"),
        Row("host put 8 B, issue", "us", lambda: b.issue(lambda: shmem.put(b.word, b.one, b.peer)), "memcpyAsync",
            lambda: b.issue(lambda: _memcpy(there, word, 8, stream) if _memcpy else raw(there, word, 8, stream)), "1.30"),
        Row("host p", "us", lambda: b.issue(lambda: shmem.p(b.word, 1, b.peer))),
        Row("host g", "us", lambda: b.issue(lambda: shmem.g(b.word, b.peer))),
        Row("atomic_fetch_add", "us", lambda: b.issue(lambda: shmem.atomic_fetch_add(b.word, 1, b.peer)), goal="12 us"),
        Row("atomic_add, issue", "us", lambda: b.issue(lambda: shmem.atomic_add(b.word, 1, b.peer))),
        Row("test", "us", lambda: b.issue(lambda: shmem.test(b.word, ">=", 0))),
        Row("barrier_all", "us", lambda: b.issue(shmem.barrier_all)),
        Row("launch of a small kernel", "us", lambda: b.issue(lambda: quick((1,), small, num_warps=1)), "kernel[grid]",
            lambda: b.issue(lambda: kernels.nothing[(1,)](small, num_warps=1)), "6 us"),
        Row("opening of the heap", "us", lambda: reopening()),
    ]  # fmt: skip
    return found


def to_all_rows(b: Bench) -> list[Row]:
    """Every PE sends to every other at once."""
    each = BYTES // 4 // b.n
    peers = [pe % b.n for pe in range(b.me + 1, b.me + b.n)]
    inbox, source = b.target.view(b.n, each), b.source[:each]
    places = [shmem.ptr(inbox, pe)[b.me] for pe in peers]
    streams = [torch.cuda.Stream() for _ in peers]

    def engines() -> None:
        for stream, place in zip(streams, places, strict=True):
            stream.wait_stream(b.stream)
            b.heap.driver.copy(place.data_ptr(), source.data_ptr(), each * 4, stream.cuda_stream)
            b.stream.wait_stream(stream)

    programs = 132 // len(peers) * 2 * len(peers)
    kernel = CachedKernel(kernels.put_to_all)

    def ours() -> None:
        kernel((programs,), b.context, inbox, source, each, num_warps=8)

    moved = each * 4 * len(peers)
    return [
        Row("put to all peers, kernel", "GB/s", lambda: b.rate(ours, moved, everybody=True), "copy engine",
            lambda: b.rate(engines, moved, everybody=True),
            "330 GB/s; engine 305"),
    ]  # fmt: skip


def reopening() -> float:
    """Seconds that the mapping of a heap takes, beside one that stays: the driver, the range, the first chunk."""
    from pyshmem.runtime.gpu.heap import GpuHeap
    from pyshmem.runtime.job import job

    used, node = heaps["cuda"], job.node_comm
    shmem.barrier_all()
    begin = time.perf_counter()
    again = GpuHeap()
    again.open(opening.Driver(used.driver.vendor, used.index), node, job.node_pes, used.cap, used.choice)
    taken = time.perf_counter() - begin
    shmem.barrier_all()
    again.close()
    return taken


def _memcpy_of_cupy() -> Callable[[int, int, int, int], None] | None:
    try:
        import cupy
    except ImportError:
        return None
    runtime = cupy.cuda.runtime
    return lambda dest, source, nbytes, stream: runtime.memcpyAsync(dest, source, nbytes, 4, stream)


_memcpy = _memcpy_of_cupy()


def measure(row: Row) -> dict[str, list[float]]:
    """Samples of the slowest PE, ours and the other's in turns."""
    samples: dict[str, list[float]] = {"ours": [], "other": []}
    slowest = MPI.MIN if row.unit == "GB/s" else MPI.MAX
    for turn in range(ROUNDS):
        sides = [("ours", row.ours), ("other", row.other)]
        for name, figure in sides if turn % 2 else sides[::-1]:
            if figure is not None:
                samples[name].append(MPI.COMM_WORLD.allreduce(figure(), slowest))
    return samples


def shown(value: float, unit: str) -> str:
    return f"{value / 1e9:.0f} GB/s" if unit == "GB/s" else f"{value * 1e6:.2f} us"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose name contains a TEXT")
    parser.add_argument("--json", metavar="FILE", help="write every sample there too")
    options = parser.parse_args()
    shmem.init()
    bench = Bench()
    table = Table(
        title=f"{bench.n} PEs, {torch.cuda.get_device_name()}, {bench.heap.choice.way}; median of {ROUNDS} rounds"
    )
    for column in ("row", "pyshmem", "spread", "compared with", "", "ratio", "goal"):
        table.add_column(column, no_wrap=True)
    results = {}
    for row in rows(bench):
        if options.only and not any(text in row.name for text in options.only):
            continue
        samples = results[row.name] = measure(row)
        middle = statistics.median(samples["ours"])
        low, _, high = statistics.quantiles(samples["ours"], n=4)
        other = statistics.median(samples["other"]) if samples["other"] else None
        table.add_row(
            row.name, shown(middle, row.unit), f"±{(high - low) / 2 / middle:.0%}", row.against,
            "" if other is None else shown(other, row.unit), "" if other is None else f"{middle / other:.2f}", row.goal,
        )  # fmt: skip
    if bench.me == 0:
        Console(width=150).print(table)
        if options.json:
            Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    shmem.finalize()


if __name__ == "__main__":
    main()
