"""The host calls of pyshmem beside those of its peers, on the PEs of this node.

Run, from a checkout with pyshmem built in it: python -m benchmarks.host [--quick] [--only TEXT] [--json FILE] [-n PES]
Prints a table of each library's times, the ratios, and the goals with whether they are met. No test depends on them.
On a busy machine rows that wait for another PE mean little: see the spreads.
"""

from __future__ import annotations

import sys

from benchmarks import command
from benchmarks.cpu import SHMEM4PY, main
from benchmarks.rows import KIB, MIB, Goal, Row, all_reduce, once, others, times
from benchmarks.runner import Effort

SIZES = (8, 64, KIB, 8 * KIB, 64 * KIB, MIB, 8 * MIB)
COLLECTIVE_SIZES = (8, 64 * KIB, 8 * MIB)
MEMCPY = "memcpy"
HALF, NO_SLOWER = (times(0.5, "shmem4py"),), (times(1, "shmem4py"),)
AMOS = (
    "set", "inc", "add", "and", "or", "xor", "fetch", "swap", "compare_swap",
    "fetch_inc", "fetch_add", "fetch_and", "fetch_or", "fetch_xor",
)  # fmt: skip


def _copy_goals(nbytes: int) -> tuple[Goal, ...]:
    return HALF if nbytes <= 64 * KIB else (times(1.05, MEMCPY),) if nbytes == 8 * MIB else ()


ROWS = (
    *(Row("RMA", "put", "put", n, bus=once, goals=_copy_goals(n), ceiling=MEMCPY) for n in SIZES),
    *(Row("RMA", "get", "get", n, bus=once, goals=_copy_goals(n), ceiling=MEMCPY) for n in SIZES),
    *(Row("RMA", "put_nbi, quiet", "put_nbi_quiet", n, bus=once, ceiling=MEMCPY) for n in (8, 64 * KIB)),
    Row("RMA", "p", "p"),
    Row("RMA", "g", "g"),
    *(Row("AMO", f"atomic_{name}", f"atomic_{name}", goals=HALF) for name in AMOS),
    Row("Ordering", "quiet", "quiet"),
    Row("Ordering", "fence", "fence"),
    Row("Waiting", "test, holds", "test"),
    Row("Waiting", "wait_until, holds", "wait_until"),
    Row("Waiting", "ping-pong: p", "ping_pong_p", steps=2, goals=HALF),
    Row("Waiting", "ping-pong: put", "ping_pong_put", steps=2, goals=HALF),
    Row("Waiting", "ping-pong: atomic_set", "ping_pong_atomic_set", steps=2, goals=HALF),
    *(Row("Waiting", "ping-pong: put_signal", "ping_pong_put_signal", n, steps=2, bus=once) for n in (8, 64 * KIB)),
    Row("Collective", "barrier_all", "barrier_all", goals=NO_SLOWER),
    Row("Collective", "sync_all", "sync_all"),
    *(
        Row("Collective", name, name, n, bus=bus, goals=HALF if n == 8 else NO_SLOWER)
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
