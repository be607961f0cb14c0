"""Collectives of GPU arrays beside NCCL's and torch's symmetric memory's, in one job; and what they cost inside a kernel.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 4 -m benchmarks.gpu_collectives [--only TEXT ...] [--json FILE]
Every result is checked before it is timed: against a sum in float64, and that all PEs have the same bits. Times are of the
slowest PE, medians over rounds that go from one library to the next; graph: a call of a CUDA graph of many.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
from mpi4py import MPI
from rich.console import Console
from rich.table import Table

import pyshmem as shmem
from benchmarks import gpu_kernels as kernels
from pyshmem.runtime.heap import heaps

ROUNDS = 5
KIB, MIB = 1 << 10, 1 << 20
DTYPE = torch.bfloat16
# bytes: microseconds in a graph that a prototype reached on four H200s
REDUCE = {16: 2.2, KIB: 2.4, 32 * KIB: 3.0, 128 * KIB: 4.7, MIB: 11.8, 16 * MIB: 79, 256 * MIB: 1155}
comm = MPI.COMM_WORLD


@dataclass
class Row:
    """``ways``: what each library does, one call, beginning with ours.  moved: bytes from each PE, for rates; 0: times."""

    name: str
    ways: dict[str, Callable[[], object]]
    calls: int  # in a graph, or between two events
    goal: str = ""
    moved: int = 0
    per: int = 1  # of what is timed in one call
    graph: bool = True
    samples: dict[str, list[float]] = field(default_factory=dict)


class Peers:
    """NCCL's and symmetric memory's calls on arrays of their own."""

    def __init__(self) -> None:
        device = torch.device("cuda", torch.cuda.current_device())
        folder = comm.bcast(tempfile.mkdtemp() if shmem.my_pe() == 0 else "")
        # a file's, not PE 0's, which would have to outlive the others
        store = dist.FileStore(os.path.join(folder, "store"), shmem.n_pes())
        dist.init_process_group("nccl", store=store, rank=shmem.my_pe(), world_size=shmem.n_pes(), device_id=device)
        self.folder = folder
        self.name = dist.group.WORLD.group_name

    def reduce(self, count: int) -> dict[str, Callable[[], object]]:
        array = torch.zeros(count, dtype=DTYPE, device="cuda")
        mapped = symmetric_memory.empty(count, dtype=DTYPE, device=array.device)
        mapped.zero_()
        symmetric_memory.rendezvous(mapped, group=dist.group.WORLD)
        ways: dict[str, Callable[[], object]] = {"NCCL": lambda: dist.all_reduce(array)}
        if count * DTYPE.itemsize <= 4 * MIB:
            ways["symm. memory 1"] = lambda: torch.ops.symm_mem.one_shot_all_reduce(mapped, "sum", self.name)
        ways["symm. memory 2"] = lambda: torch.ops.symm_mem.two_shot_all_reduce_(mapped, "sum", self.name)
        return ways


def same_on_all(array: torch.Tensor) -> bool:
    return len(set(comm.allgather(array.view(torch.int16).to(torch.int64).sum().item()))) == 1


def check_reduce(target: torch.Tensor, source: torch.Tensor) -> None:
    """Not a number before, the sum after, whoever looks."""
    wanted = source.double()
    dist.all_reduce(wanted)
    for _ in range(3):
        target.fill_(float("nan"))
        shmem.reduce_on_stream(target, source)
        error = ((target.double() - wanted).norm() / wanted.norm()).item()
        assert error < 5e-3 and same_on_all(target), f"{target.nbytes} bytes: relative error {error}"


def reductions(peers: Peers) -> list[Row]:
    rows = []
    for nbytes, goal in REDUCE.items():
        count = nbytes // DTYPE.itemsize
        source = shmem.array(torch.randn(count, device="cuda").to(DTYPE))
        target = shmem.empty(count, dtype=DTYPE)
        check_reduce(target, source)
        ways: dict[str, Callable[[], object]] = {
            "pyshmem": lambda target=target, source=source: shmem.reduce_on_stream(target, source),
            **peers.reduce(count),
        }
        calls = 20 if nbytes < 8 * MIB else 2
        rows.append(Row(f"all_reduce, graph, {_size(nbytes)}", ways, calls, f"{goal} us"))
        if nbytes <= 128 * KIB:
            goal_eager = "5.5 us" if nbytes <= 32 * KIB else ""
            rows.append(Row(f"all_reduce, eager, {_size(nbytes)}", ways, 200, goal_eager, graph=False))
    return rows


def launches() -> list[Row]:
    """What of a small all_reduce is the kernel's launch."""
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    return [Row("no kernel but an empty one, graph", {"pyshmem": lambda: kernels.nothing[(1,)](word, num_warps=1)}, 20)]


def movements() -> list[Row]:
    rows, n = [], shmem.n_pes()
    for each in (32 * MIB, 128 * MIB):
        count = each // DTYPE.itemsize
        source = shmem.array(torch.randn(count, device="cuda").to(DTYPE))
        target, theirs = shmem.zeros(count * n, dtype=DTYPE), torch.zeros(count * n, dtype=DTYPE, device="cuda")
        shmem.fcollect_on_stream(target, source)
        dist.all_gather_into_tensor(theirs, source)
        assert torch.equal(target.view(torch.int16), theirs.view(torch.int16))
        part, their_part = target[:count], theirs[:count]
        shmem.alltoall_on_stream(part, source)
        dist.all_to_all_single(their_part, source)
        assert torch.equal(part.view(torch.int16), their_part.view(torch.int16))
        gather: dict[str, Callable[[], object]] = {
            "pyshmem": lambda target=target, source=source: shmem.fcollect_on_stream(target, source),
            "NCCL": lambda theirs=theirs, source=source: dist.all_gather_into_tensor(theirs, source),
        }
        swap: dict[str, Callable[[], object]] = {
            "pyshmem": lambda part=part, source=source: shmem.alltoall_on_stream(part, source),
            "NCCL": lambda theirs=their_part, source=source: dist.all_to_all_single(theirs, source),
        }
        goal = "1.1 x NCCL"
        rows.append(Row(f"all-gather, {_size(each)} a PE", gather, 3, goal, each * (n - 1), graph=False))
        rows.append(Row(f"all-to-all, {_size(each)} a PE", swap, 3, goal, each * (n - 1) // n, graph=False))
    return rows


def in_kernels() -> list[Row]:
    """What one call costs inside a kernel that makes many."""
    ctx, turns = shmem.device_context(), 500
    out = torch.zeros(512, dtype=DTYPE, device="cuda")
    data, flag = shmem.zeros(KIB, dtype=torch.float32), shmem.zeros(1, dtype=torch.uint64)
    source = torch.ones(KIB, device="cuda")
    begun = {"signal": 3, "barrier": 3}  # odd: no numbers that Triton compiles anew for
    # A barrier's time depends on where its words lie in the GPU's memory, by a tenth: each turn they lie somewhere else.
    teams = [shmem.TEAM_WORLD.split_strided(0, 1, shmem.n_pes()) for _ in range(ROUNDS)]
    contexts = itertools.cycle([ctx, *map(shmem.device_context, teams)])

    def ping_pong() -> None:
        if shmem.my_pe() < 2:
            kernels.ping_pong_payload[(1,)](ctx, data, source, KIB, flag, begun["signal"], turns, num_warps=8)
        begun["signal"] += turns

    def barriers() -> None:
        kernels.barriers[(1,)](next(contexts), turns, num_warps=4)

    places = itertools.cycle(shmem.zeros((ROUNDS + 1, 1040), dtype=torch.int64))
    stride = heaps["cuda"].stride

    def barriers_by_hand() -> None:
        me, members = shmem.my_pe(), shmem.n_pes()
        kernels.barriers_by_hand[(1,)](next(places), stride, me, members, begun["barrier"], turns, num_warps=1)
        begun["barrier"] += turns

    ways: dict[str, Callable[[], object]] = {"pyshmem": barriers}
    if stride and shmem.n_pes() <= 32:
        ways["by hand"] = barriers_by_hand
    rows = [Row("barrier_all in a kernel", ways, 1, "1.41 us", per=turns, graph=False)]
    for nbytes, warps, goal in ((16, 1, "1.2 us"), (KIB, 8, "")):
        way = {"pyshmem": lambda n=nbytes, w=warps: kernels.reductions[(1,)](ctx, out, turns, n // 2, num_warps=w)}
        rows.append(Row(f"all_reduce in a kernel, {_size(nbytes)}", way, 1, goal, per=turns, graph=False))
    rows.append(Row("put_signal of 4 KiB, one way", {"pyshmem": ping_pong}, 1, "2.2 us", per=2 * turns, graph=False))
    return rows


def together() -> None:
    torch.cuda.synchronize()
    comm.Barrier()


def seconds(action: Callable[[], object], calls: int) -> float:
    """Of one call, on the slowest PE."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    together()
    start.record()
    for _ in range(calls):
        action()
    end.record()
    torch.cuda.synchronize()
    return comm.allreduce(start.elapsed_time(end) / 1e3 / calls, MPI.MAX)


def captured(action: Callable[[], object], calls: int) -> Callable[[], object]:
    action()
    together()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            action()
    graph.replay()
    return graph.replay


def measure(row: Row) -> None:
    ready = {name: captured(way, row.calls) if row.graph else way for name, way in row.ways.items()}
    for way in ready.values():
        way()
    calls = 3 if row.graph else row.calls
    for turn in range(ROUNDS):
        for name, way in list(ready.items())[:: 1 if turn % 2 else -1]:
            taken = seconds(way, calls) / (row.calls if row.graph else 1) / row.per
            row.samples.setdefault(name, []).append(taken)


def _size(nbytes: int) -> str:
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB" if nbytes >= KIB else f"{nbytes} B"


def _shown(row: Row, taken: float) -> str:
    return f"{row.moved / taken / 1e9:.0f} GB/s" if row.moved else f"{taken * 1e6:.2f} us"


def leave(peers: Peers) -> None:
    """Without the end of torch's group: NCCL gives none back whose calls have been in graphs."""
    comm.Barrier()
    if shmem.my_pe() == 0:
        shutil.rmtree(peers.folder)
    shmem.finalize()
    if not MPI.Is_finalized():
        MPI.Finalize()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_collectives", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose name contains a TEXT")
    parser.add_argument("--json", metavar="FILE", help="write every sample there too")
    options = parser.parse_args()
    shmem.init()
    peers = Peers()
    rows = [*launches(), *reductions(peers), *movements(), *in_kernels()]
    table = Table(title=f"{shmem.n_pes()} PEs, {torch.cuda.get_device_name()}; median of {ROUNDS} rounds")
    for column in ("row", "pyshmem", "spread", "best other", "", "their time / ours", "goal"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        if options.only and not any(text in row.name for text in options.only):
            continue
        measure(row)
        middle = {name: statistics.median(each) for name, each in row.samples.items()}
        ours = middle.pop("pyshmem")
        low, _, high = statistics.quantiles(row.samples["pyshmem"], n=4)
        best = min(middle, key=lambda name: middle[name], default="")
        table.add_row(
            row.name, _shown(row, ours), f"±{(high - low) / 2 / ours:.0%}", _shown(row, middle[best]) if best else "",
            best, f"{middle[best] / ours:.2f}" if best else "", row.goal,
        )  # fmt: skip
    if shmem.my_pe() == 0:
        Console(width=150).print(table)
        if options.json:
            Path(options.json).write_text(json.dumps({row.name: row.samples for row in rows}, indent=1) + "\n")
    leave(peers)


if __name__ == "__main__":
    main()
