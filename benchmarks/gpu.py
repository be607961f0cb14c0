"""Latency and calls of the host on GPU heaps, beside the driver's calls and kernels written by hand, in one job.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.gpu [--only TEXT ...] [--json FILE]
Machines are shared and GPUs warm up, so compare ratios within one run.
"""

from __future__ import annotations

import sys

from benchmarks.command import Suite
from benchmarks.in_job import main
from benchmarks.rows import Row
from benchmarks.runner import Effort

ROUNDS = 2000

ROWS = (
    Row("Latency", "signal, one way", "ping_pong", parameters=(ROUNDS,), least_pes=2),
    Row("Host", "host put 8 B, issue", "host_put_word"),
    Row("Host", "host p", "host_p"),
    Row("Host", "host g", "host_g"),
    Row("Host", "atomic_fetch_add", "host_fetch_add"),
    Row("Host", "atomic_add, issue", "host_add"),
    Row("Host", "test", "host_test"),
    Row("Host", "barrier_all", "host_barrier"),
    Row("Heap", "opening of the heap", "opening", rounds=9),
)  # fmt: skip
SUITE = Suite("gpu", ROWS, full=Effort(0.0, 9, 25), quick=Effort(0.0, 5, 5))

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
