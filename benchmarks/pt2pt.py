"""Calls on the CPU heap: put, get and streams of puts by size, words, atomics, waits, ping-pongs, and every pair of PEs.

Run, from a checkout with pyshmem built in it: python -m benchmarks.pt2pt [--quick] [--full] [--only TEXT] [--json FILE]
[-n PES]. PE 0 acts on PE 1 but where a row says otherwise. Ceilings are copies of NumPy between the same memory, in the same
job.
"""

from __future__ import annotations

import sys
from itertools import permutations

from benchmarks.command import Suite
from benchmarks.cpu import MPI, SHMEM4PY, main
from benchmarks.peers.case import WINDOW
from benchmarks.rows import KIB, MIB, Row, both_ways, once, sweep
from benchmarks.runner import Effort

MEMCPY = "memcpy"
SIZES = sweep(8, 256 * MIB)
MOST_PAIRS = 8  # PEs between which every pair has a row
AMOS = {  # alias
    "fetch_add": "osu_oshm_atomics, osu_fop_latency, shmem_atomic_latency",
    "compare_swap": "osu_oshm_atomics, osu_cas_latency",
    "swap": "osu_oshm_atomics",
    "add": "osu_oshm_atomics, osu_acc_latency",
    **dict.fromkeys(("set", "inc", "and", "or", "xor", "fetch", "fetch_inc", "fetch_and", "fetch_or", "fetch_xor"), ""),
}

ROWS = (
    *(
        Row(group, name, operation, n, bus=bus, ceiling=MEMCPY, alias=alias, dense=dense)
        for group, name, operation, bus, alias in (
            ("put", "put, quiet", "put_quiet", once, "osu_oshm_put, osu_put_latency"),
            ("get", "get", "get", once, "osu_oshm_get, osu_get_latency"),
            ("Bidirectional", "put both ways, quiet", "put_both", both_ways, "osu_put_bibw"),
        )
        for n, dense in SIZES.items()
        if group != "Bidirectional" or 512 <= n <= 16 * MIB
    ),
    *(
        Row("Message rate", f"{WINDOW} puts, quiet", "put_window", n, steps=WINDOW, bus=once, messages=True,
            alias="osu_oshm_put_mr", dense=dense)
        for n, dense in sweep(8, 4 * KIB).items()
    ),
    *(
        Row("NumPy arrays", name, operation, n, bus=once)
        for name, operation in (("put from NumPy, quiet", "put_of_numpy"), ("get to NumPy", "get_to_numpy"))
        for n in (8, 4 * KIB)
    ),
    Row("Words", "p", "p", alias="shmem_p_latency"),
    Row("Words", "g", "g", alias="shmem_g_latency"),
    *(Row("Words", f"atomic_{name}", f"atomic_{name}", alias=alias) for name, alias in AMOS.items()),
    *(Row("Words", f"{name}, holds", name) for name in ("test", "wait_until")),
    *(Row("Words", f"{name}, 8 words, hold", name) for name in ("test_some", "wait_until_all")),
    *(Row("Words", name, name) for name in ("quiet", "fence")),
    Row("Ping-pong, one way", "ping-pong: p", "ping_pong_p", steps=2, alias="shmem_p_ping_pong_latency"),
    Row("Ping-pong, one way", "ping-pong: put", "ping_pong_put", steps=2),
    Row("Ping-pong, one way", "ping-pong: atomic_set", "ping_pong_atomic_set", steps=2),
    *(
        Row("Ping-pong, one way", "ping-pong: put_signal", "ping_pong_put_signal", n, steps=2, bus=once,
            alias="shmem_put_signal_ping_pong_latency", dense=dense)
        for n, dense in sweep(8, 2 * MIB).items()
    ),
    Row("Memory", "malloc, free", "malloc_free", KIB),
    *(
        Row("Pairs", f"put, PE {origin} to {dest}", "pair", 2 * MIB, (origin, dest), bus=once, ceiling=MEMCPY,
            least_pes=max(origin, dest) + 1)
        for origin, dest in permutations(range(MOST_PAIRS), 2)
    ),
    *(
        Row("Ceilings", f"memcpy in private memory, {who}", "memory_copy", n, (everybody,), bus=once, dense=dense)
        for who, everybody in (("one PE", False), ("all PEs at once", True))
        for n, dense in sweep(8, 256 * MIB).items()
        if n >= 64 * KIB
    ),
)  # fmt: skip
SUITE = Suite("pt2pt", ROWS, full=Effort(0.001, 7, 21), quick=Effort(0.0005, 3, 5), sweeps=True)

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__, (SHMEM4PY, MPI)))
