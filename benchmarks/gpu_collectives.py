"""Collectives of GPU arrays beside those of NCCL and torch's symmetric memory, in one job, and collectives in kernels.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 4 -m benchmarks.gpu_collectives [--only TEXT ...] [--json FILE]
Sums are checked against float64 and for equal bits on all PEs. "graph" times a call in a CUDA graph of many, "eager" one
from Python. To compare with another checkout, run this with --of CHECKOUT --json FILE and then with --compare FILE.
"""

from __future__ import annotations

import sys

from benchmarks.command import Suite
from benchmarks.in_job import EVENTS, GRAPH, main
from benchmarks.rows import KIB, MIB, Goal, Row, all_reduce, at_most, beyond, once, others, rate, shares, sweep
from benchmarks.runner import Effort

ENGINE, BARE = "copy engine, all at once", "bare launch"
BOUND = MIB  # bytes from which the link and not latency bounds an all_reduce
# bytes: microseconds in a graph that a prototype reached on four H200s
REDUCE = {16: 2.2, KIB: 2.4, 32 * KIB: 3.0, 128 * KIB: 4.7, MIB: 11.8, 16 * MIB: 79, 256 * MIB: 1155}
PAIR = {16: at_most(1.5e-6), MIB: at_most(8e-6), 16 * MIB: rate(0.85, ENGINE), 256 * MIB: rate(0.92, ENGINE)}
EAGER = (16, KIB, 32 * KIB, 128 * KIB)
BRIEF = {  # name: the bytes of its rows that --quick measures too
    "all_reduce, graph": (16, 32 * KIB, MIB, 16 * MIB, 256 * MIB),
    "all_reduce, eager": (16, 128 * KIB),
    "Movement": (32 * MIB,),
    "Movement by size": (64, 4 * KIB, 256 * KIB, 16 * MIB),
}


def _reduce(name: str, how: str, nbytes: int, goals: tuple[Goal, ...], alias: str = "") -> Row:
    ceiling = ENGINE if nbytes >= BOUND else ""
    brief = nbytes in BRIEF[name]
    return Row("all_reduce", name, "reduce", nbytes, (how,), bus=all_reduce, goals=goals, ceiling=ceiling, alias=alias,
               brief=brief)  # fmt: skip


def _in_graph(nbytes: int) -> tuple[Goal, ...]:
    of_four = at_most(REDUCE[nbytes] * 1e-6).of(4)
    return (of_four, PAIR[nbytes].of(2)) if nbytes in PAIR else (of_four,)


ROWS = (
    Row("all_reduce", "no kernel but an empty one, graph", "empty_kernel"),
    *(
        _reduce("all_reduce, graph", GRAPH, nbytes, _in_graph(nbytes), "reduction_on_stream, osu_allreduce")
        for nbytes in REDUCE
    ),
    *(
        _reduce("all_reduce, eager", EVENTS, nbytes, (beyond(1.5e-6, BARE),) if nbytes == 16 else ())
        for nbytes in EAGER
    ),
    *(
        Row(
            "Movement",
            name,
            operation,
            nbytes,
            bus=bus,
            goals=(rate(1.1, "NCCL"),),
            least_pes=2,
            brief=nbytes in BRIEF["Movement"],
        )
        for nbytes in (32 * MIB, 128 * MIB)  # of each PE's source
        for name, operation, bus in (
            ("all-gather", "all_gather", others),
            ("all-to-all", "all_to_all", shares),
        )
    ),
    *(
        Row(
            "Movement by size",
            f"{name}, graph",
            operation,
            nbytes,
            (GRAPH,),
            bus=bus,
            alias=alias,
            least_pes=2,
            dense=dense,
            brief=nbytes in BRIEF["Movement by size"],
        )
        for name, operation, bus, alias in (
            ("broadcast", "broadcast", once, "broadcast_on_stream, osu_bcast"),
            ("fcollect", "all_gather", others, "fcollect_on_stream, osu_allgather"),
            ("alltoall", "all_to_all", shares, "alltoall_on_stream, osu_alltoall"),
        )
        for nbytes, dense in sweep(64, 16 * MIB).items()
    ),
    Row("Barrier", "barrier_on_stream, graph", "barrier", parameters=(GRAPH,), alias="barrier_on_stream"),
    Row("In a kernel", "barrier_all in a kernel", "barriers", goals=(at_most(1.41e-6),)),
    Row("In a kernel", "all_reduce in a kernel", "reductions", 16, (1,), goals=(at_most(1.2e-6),)),
    Row("In a kernel", "all_reduce in a kernel", "reductions", KIB, (8,)),
    Row("In a kernel", "put_signal, one way", "ping_pong", 4 * KIB, goals=(at_most(2.2e-6),), least_pes=2),
)
SUITE = Suite("gpu_collectives", ROWS, full=Effort(0.0, 5, 15), quick=Effort(0.0, 3, 3))

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
