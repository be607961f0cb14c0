"""Collectives on the CPU heap: by size, and the barrier by the number of PEs.

Run, from a checkout with pyshmem built in it: python -m benchmarks.collectives [--quick] [--full] [--only TEXT]
[--json FILE] [-n PES]. Bytes are those of the source of a PE, for alltoall those from one PE to another. The ceiling is as
long as NumPy takes to copy what a PE receives, on all PEs at once. With more PEs than cores, barriers measure the scheduler.
"""

from __future__ import annotations

import sys

from benchmarks.command import Suite
from benchmarks.cpu import MPI, SHMEM4PY, main
from benchmarks.rows import MIB, Row, all_reduce, once, others, sweep
from benchmarks.runner import Effort

MEMCPY = "memcpy of the result"
PES = {2: False, 4: False, 8: False, 16: True, 32: True, 64: True}  # whether they are measured with --full only

ROWS = (
    *(
        Row(name, name, name, n, bus=bus, ceiling=MEMCPY, alias=alias, dense=dense)
        for name, bus, alias in (
            ("broadcast", once, "osu_oshm_broadcast, osu_bcast"),
            ("fcollect", others, "osu_oshm_fcollect, osu_allgather"),
            ("alltoall", others, "osu_alltoall"),
            ("sum_reduce", all_reduce, "osu_oshm_reduce, osu_allreduce"),
        )
        for n, dense in sweep(8, 16 * MIB).items()
    ),
    *(
        Row("Barrier by PEs", f"{name}, {n} PEs", name, pes=n, alias=alias, dense=dense)
        for n, dense in PES.items()
        for name, alias in (("barrier_all", "osu_oshm_barrier, osu_barrier"), ("sync_all", ""))
    ),
)
SUITE = Suite("collectives", ROWS, full=Effort(0.001, 7, 21), quick=Effort(0.0005, 3, 5), sweeps=True)

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__, (SHMEM4PY, MPI)))
