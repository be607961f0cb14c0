"""The calls on GPU heaps beside the copy engine, the driver's own calls and kernels written by hand, in one job.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.gpu [--only TEXT ...] [--json FILE]
Machines are shared and GPUs warm up, so compare ratios within one run. To compare with another checkout, run this with --of
CHECKOUT --json FILE and then with --compare FILE.
"""

from __future__ import annotations

import sys

from benchmarks.command import Suite
from benchmarks.in_job import main
from benchmarks.rows import MIB, Goal, Row, at_most, gigabytes, once, rate, shares, times
from benchmarks.runner import Effort

ENGINE = "copy engine"
BYTES = 256 * MIB
ROUNDS = 2000


def _part(programs: int) -> tuple[Goal, ...]:
    return (rate(0.85, ENGINE),) if programs == 64 else (rate(0.92, ENGINE),) if programs > 132 else ()


def _copy(name: str, operation: str, *parameters: object, goals: tuple[Goal, ...] = ()) -> Row:
    return Row("Copies", name, operation, BYTES, parameters, bus=once, goals=goals, ceiling=ENGINE)


ROWS = (
    _copy("host put", "host_put", goals=(rate(1, ENGINE),)),
    *(
        _copy(f"{way}, {programs} programs", f"{way}_by_kernel", programs, goals=_part(programs))
        for programs in (32, 64, 132, 264, 528)
        for way in ("put", "get")
    ),
    _copy("put, all PEs at once", "put_by_kernel", 264, True),
    _copy("get, all PEs at once", "get_by_kernel", 264, True),
    Row("Copies", "put to all peers, kernel", "put_to_all", BYTES, bus=shares, goals=(gigabytes(330),), ceiling=ENGINE,
        least_pes=3),
    Row("Latency", "signal, one way", "ping_pong", parameters=(ROUNDS,), goals=(times(1, "by hand"), at_most(1.3e-6)),
        least_pes=2),
    Row("Host", "host put 8 B, issue", "host_put_word", goals=(times(1.3, "memcpyAsync"),)),
    Row("Host", "host p", "host_p"),
    Row("Host", "host g", "host_g"),
    Row("Host", "atomic_fetch_add", "host_fetch_add", goals=(at_most(12e-6),)),
    Row("Host", "atomic_add, issue", "host_add"),
    Row("Host", "test", "host_test"),
    Row("Host", "barrier_all", "host_barrier"),
    Row("Host", "launch of a small kernel", "launch", goals=(at_most(6e-6),)),
    Row("Heap", "opening of the heap", "opening", rounds=9),
)  # fmt: skip
SUITE = Suite("gpu", ROWS, full=Effort(0.0, 9, 25), quick=Effort(0.0, 5, 5))

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
