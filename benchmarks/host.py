"""The host calls of pyshmem beside those of its peers, on the PEs of this node.

Run, from a checkout with pyshmem built in it: python -m benchmarks.host [--quick] [--only TEXT] [--json FILE] [-n PES]
Prints a table of each library's times, and the ratios.
On a busy machine rows that wait for another PE mean little: see the spreads.
"""

from __future__ import annotations

import sys

from benchmarks import command
from benchmarks.cpu import SHMEM4PY, main
from benchmarks.rows import KIB, MIB, Row, all_reduce, once, others
from benchmarks.runner import Effort

SIZES = (8, 64, KIB, 8 * KIB, 64 * KIB, MIB, 8 * MIB)
COLLECTIVE_SIZES = (8, 64 * KIB, 8 * MIB)
MEMCPY = "memcpy"
AMOS = (
    "set", "inc", "add", "and", "or", "xor", "fetch", "swap", "compare_swap",
    "fetch_inc", "fetch_add", "fetch_and", "fetch_or", "fetch_xor",
)  # fmt: skip


ROWS = (
    *(Row("RMA", "put", "put", n, bus=once, ceiling=MEMCPY) for n in SIZES),
    *(Row("RMA", "get", "get", n, bus=once, ceiling=MEMCPY) for n in SIZES),
    *(Row("RMA", "put_nbi, quiet", "put_nbi_quiet", n, bus=once, ceiling=MEMCPY) for n in (8, 64 * KIB)),
    Row("RMA", "p", "p"),
    Row("RMA", "g", "g"),
    *(Row("AMO", f"atomic_{name}", f"atomic_{name}") for name in AMOS),
    Row("Ordering", "quiet", "quiet"),
    Row("Ordering", "fence", "fence"),
    Row("Waiting", "test, holds", "test"),
    Row("Waiting", "wait_until, holds", "wait_until"),
    Row("Waiting", "ping-pong: p", "ping_pong_p", steps=2),
    Row("Waiting", "ping-pong: put", "ping_pong_put", steps=2),
    Row("Waiting", "ping-pong: atomic_set", "ping_pong_atomic_set", steps=2),
    *(Row("Waiting", "ping-pong: put_signal", "ping_pong_put_signal", n, steps=2, bus=once) for n in (8, 64 * KIB)),
    Row("Collective", "barrier_all", "barrier_all"),
    Row("Collective", "sync_all", "sync_all"),
    *(
        Row("Collective", name, name, n, bus=bus)
        for name, bus in (
            ("broadcast", once),
            ("fcollect", others),
            ("alltoall", others),
            ("sum_reduce", all_reduce),
        )
        for n in COLLECTIVE_SIZES
    ),
    Row("Memory", "malloc, free", "malloc_free", KIB),
)
SUITE = command.Suite("host", ROWS, full=Effort(0.002, 25, 101), quick=Effort(0.001, 7, 15))


if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__, (SHMEM4PY,)))
