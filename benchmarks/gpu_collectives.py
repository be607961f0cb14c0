"""Collectives of GPU arrays beside those of NCCL and torch's symmetric memory, in one job, and collectives in kernels.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 4 -m benchmarks.gpu_collectives [--only TEXT ...] [--json FILE]
Sums are checked against float64 and for equal bits on all PEs. "graph" times a call in a CUDA graph of many, "eager" one
from Python.
"""

from __future__ import annotations

import sys

from benchmarks.command import Suite
from benchmarks.in_job import EVENTS, GRAPH, main
from benchmarks.rows import KIB, MIB, Row, all_reduce, once, others, shares, sweep
from benchmarks.runner import Effort

ENGINE, BARE = "copy engine, all at once", "bare launch"
BOUND = MIB  # bytes from which the link and not latency bounds an all_reduce
REDUCE = (16, KIB, 32 * KIB, 128 * KIB, MIB, 16 * MIB, 256 * MIB)
EAGER = (16, KIB, 32 * KIB, 128 * KIB)
BRIEF = {  # name: the bytes of its rows that --quick measures too
    "all_reduce, graph": (16, 32 * KIB, MIB, 16 * MIB, 256 * MIB),
    "all_reduce, eager": (16, 128 * KIB),
    "Movement": (32 * MIB,),
    "Movement by size": (64, 4 * KIB, 256 * KIB, 16 * MIB),
}


def _reduce(name: str, how: str, nbytes: int, alias: str = "") -> Row:
    ceiling = ENGINE if nbytes >= BOUND else ""
    brief = nbytes in BRIEF[name]
    return Row("all_reduce", name, "reduce", nbytes, (how,), bus=all_reduce, ceiling=ceiling, alias=alias,
               brief=brief)  # fmt: skip


ROWS = (
    *(_reduce("all_reduce, graph", GRAPH, nbytes, "reduction_on_stream, osu_allreduce") for nbytes in REDUCE),
    *(_reduce("all_reduce, eager", EVENTS, nbytes) for nbytes in EAGER),
    *(
        Row("Movement", name, operation, nbytes, bus=bus, least_pes=2, brief=nbytes in BRIEF["Movement"])
        for nbytes in (32 * MIB, 128 * MIB)  # of each PE's source
        for name, operation, bus in (("all-gather", "all_gather", others), ("all-to-all", "all_to_all", shares))
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
    Row("In a kernel", "barrier_all in a kernel", "barriers"),
    Row("In a kernel", "all_reduce in a kernel", "reductions", 16, (1,)),
    Row("In a kernel", "all_reduce in a kernel", "reductions", KIB, (8,)),
)
SUITE = Suite("gpu_collectives", ROWS, full=Effort(0.0, 5, 15), quick=Effort(0.0, 3, 3))

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
