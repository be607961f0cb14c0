"""Products with their communication, by every schedule, beside torch's ways and the bound, in one job.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.ops [--only TEXT ...] [--json FILE]
All but torch's fused operators is timed in CUDA graphs of eight calls. The
bound is the slower of the library's product alone and of the copy engine with as many bytes as the operator sends, in this
run. "GEMM beside copies" is both at once, neither of which waits for the other: what copies take from a product at the GPU's
power limit is in it. Results are compared with sums in float64.
"""

from __future__ import annotations

import sys

from benchmarks.command import Suite
from benchmarks.in_job import main
from benchmarks.rows import Row
from benchmarks.runner import Effort

SHAPES = {  # M, N, K
    "S0": (4096, 4096, 12288),
    "S1": (4096, 3584, 14336),
    "S2": (4096, 4608, 36864),
    "S3": (4096, 8192, 28672),
    "T0": (8192, 8192, 4096),
    "T1": (16384, 4096, 2048),
}
FOUR = {name: (8192, N, K) for name, (_, N, K) in SHAPES.items() if name[0] == "S"}
BOUNDS = ("GEMM alone", "copy engine")

CALLED = (  # operators and splits
    ("gemm_all_gather", "rows"),
    ("gemm_all_gather", "columns"),
    ("all_gather_gemm", "rows"),
    ("gemm_reduce_scatter", "rows"),
    ("gemm_all_reduce", "rows"),
)
CALLED_BY_FOUR = (CALLED[0], *CALLED[2:4])


def _name(operator: str, split: str) -> str:
    return f"{operator} by columns" if split == "columns" else operator


EIGHT_BITS = ("S0", "S3", "T1")  # the shapes of rows of 8-bit floats

ROWS = (
    *(
        Row(_name(*called), f"{_name(*called)} {shape}", "product", parameters=(*called, *sizes), bound=BOUNDS)
        for called in CALLED
        for shape, sizes in SHAPES.items()
    ),
    *(
        Row("Four GPUs", f"{_name(*called)} {shape}, M = {sizes[0]}", "product", parameters=(*called, *sizes),
            bound=BOUNDS, least_pes=4)
        for called in CALLED_BY_FOUR
        for shape, sizes in FOUR.items()
    ),
    *(
        Row(f"fp8 {_name(*called)}", f"fp8 {_name(*called)} {shape}", "scaled_product",
            parameters=(*called, *SHAPES[shape]), bound=BOUNDS)
        for called in CALLED
        for shape in EIGHT_BITS
    ),
    *(
        Row("Small batches", f"gemm_all_reduce M = {M}", "product", parameters=("gemm_all_reduce", "rows", M, 8192, 28672),
            bound=BOUNDS)
        for M in (1, 16, 64)
    ),
    *(
        Row("Host", f"{_name(*called)}, a call's issue", "host_cost", parameters=(*called, 512, 512, 512))
        for called in CALLED
    ),
)  # fmt: skip


SUITE = Suite("ops", ROWS, full=Effort(0.0, 7, 11), quick=Effort(0.0, 2, 2))

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
