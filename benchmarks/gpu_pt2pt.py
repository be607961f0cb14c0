"""Point to point on GPU heaps, swept over sizes: by host calls, by bulk calls in kernels, by loads and stores of tiles.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.gpu_pt2pt [--quick] [--full] [--only TEXT]
[--json FILE]. PE 0 acts on PE 1 but where a row says otherwise. Host calls are timed by the host, kernels by the GPU; calls
in kernels follow each other many times in one launch. The copy engine's time for the same bytes is the ceiling.
"""

from __future__ import annotations

import sys
from itertools import permutations

from benchmarks.command import Suite
from benchmarks.in_job import EVENTS, GRAPH, ISSUE, main
from benchmarks.rows import KIB, MIB, Row, both_ways, once, sweep
from benchmarks.runner import Effort

ENGINE = "copy engine"
BOUND = 16 * MIB  # bytes from which the engine's rate and not its start bounds a copy
SIZES = sweep(8, 256 * MIB)
MOST_PAIRS = 8  # PEs between which every pair has a row
WAYS = (  # group, name, operation, parameters, bus factor, least and most bytes, the programs that measure the same
    ("put", "put, quiet by the host", "host_put", (), once, 8, 256 * MIB, "osu_oshm_put, osu_put_latency"),
    ("put", "put in a kernel", "kernel_put", (False,), once, 8, 256 * MIB, "shmem_put_bw"),
    ("put", "put, quiet in a kernel", "kernel_put", (True,), once, 8, 256 * KIB, "shmem_put_latency"),
    ("put", "store of tiles in a kernel", "tile_store", (), once, 8, 256 * MIB, "shmem_st_bw"),
    ("get", "get by the host", "host_get", (), once, 8, 256 * MIB, "osu_oshm_get, osu_get_latency"),
    ("get", "get in a kernel", "kernel_get", (), once, 8, 256 * MIB, "shmem_get_bw"),
    ("get", "load of tiles in a kernel", "tile_load", (), once, 8, 256 * MIB, ""),
    ("Bidirectional", "put by the host, both ways", "host_put_both", (), both_ways, 64 * KIB, 256 * MIB, "osu_put_bibw"),
    ("Bidirectional", "put in a kernel, both ways", "kernel_put_both", (), both_ways, 64 * KIB, 256 * MIB, "shmem_put_bw"),
)  # fmt: skip

ROWS = (
    *(
        Row(group, name, operation, n, parameters, bus=bus, ceiling=ENGINE if n >= BOUND else "", alias=alias,
            dense=dense, least_pes=2)
        for group, name, operation, parameters, bus, least, most, alias in WAYS
        for n, dense in SIZES.items()
        if least <= n <= most
    ),
    *(Row("Words by the host", f"{name} by the host", name, least_pes=2) for name in ("p", "g", "atomic_fetch_add")),
    *(
        Row("Words in a kernel", name, "word", parameters=(kind,), alias=alias, least_pes=2)
        for name, kind, alias in (
            ("p, quiet", "P", "shmem_p_latency"),
            ("g", "G", "shmem_g_latency"),
            ("atomic_fetch_add", "FETCH_ADD", "shmem_atomic_latency"),
            ("atomic_compare_swap", "COMPARE_SWAP", "shmem_atomic_latency"),
        )
    ),
    *(
        Row("Message rate in a kernel", f"p by {programs} programs", "word_puts", 8, (programs,), bus=once, messages=True,
            alias="shmem_p_bw", least_pes=2)
        for programs in (1, 32, 132)
    ),
    Row("Message rate in a kernel", "atomic_add of tiles of 1024", "tile_adds", 8, (132,), bus=once, messages=True,
        alias="shmem_atomic_bw", least_pes=2),
    *(
        Row("Ping-pong in a kernel, one way", "put_signal", "ping_pong", n, bus=once, dense=dense, least_pes=2,
            alias="shmem_put_signal_ping_pong_latency")
        for n, dense in sweep(8, 2 * MIB).items()
    ),
    *(
        Row("Pairs", f"put, PE {origin} to {dest}", "pair", 64 * MIB, (origin, dest), bus=once, ceiling=ENGINE,
            least_pes=max(origin, dest) + 1)
        for origin, dest in permutations(range(MOST_PAIRS), 2)
    ),
    *(
        Row("Ceilings", f"empty kernel, {name}", "empty", parameters=(how,))
        for name, how in (("issue", ISSUE), ("one after the other", EVENTS), ("in a graph", GRAPH))
    ),
    Row("Ceilings", "copy within the memory of a GPU", "local_copy", 256 * MIB, bus=once),
    Row("Ceilings", "read of the memory of a GPU", "local_read", 256 * MIB, bus=once),
)  # fmt: skip
SUITE = Suite("gpu_pt2pt", ROWS, full=Effort(0.0, 5, 11), quick=Effort(0.0, 3, 3), sweeps=True)

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
