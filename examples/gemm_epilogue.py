"""C = f(A @ B) by one call: each PE computes its columns of C, applies f to each tile, and all PEs get the whole C.

Run: pyshmemrun -n 4 examples/gemm_epilogue.py
Prints: 4 PEs: all have the lower triangle of relu(A @ B), 128 x 128 x 96, by 2 schedules, with equal bits
examples/gemm_all_scatter.py is such a product as a kernel written by hand."""

import pyshmem as shmem  # before triton: selects Triton's interpreter if there is no GPU
import torch
import triton
import triton.language as tl
from pyshmem import ops


@triton.jit
def lower_relu(tile, rows, columns):
    """The epilogue: of a tile in float32, with the numbers of its rows and columns in C."""
    return tl.where(rows >= columns, tl.maximum(tile, 0.0), 0.0)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, in whose memory kernels store
me, n_pes = team.my_pe(), team.n_pes()
ops.reserve(1 << 20)  # bytes for plans of teams, which may not include all PEs
M, N, K = 128, 128, 96

c = shmem.full((M, N), float("nan"), dtype=torch.float32)  # symmetric: peers store their columns here
torch.manual_seed(0)  # the same A and B on all PEs
a, b = torch.randn(M, K).to(c.device), torch.randn(K, N).to(c.device)
my_b = b.tensor_split(n_pes, dim=1)[me].contiguous()

for schedule in (
    "bulk_synchronous",
    "fused",
):  # a product, then copies; or one kernel, which sends tiles while it computes
    c.fill_(float("nan"))
    ops.gemm_all_gather(a, my_b, split="columns", out=c, schedule=schedule, epilogue=lower_relu, size=N, team=team)
    exact = (a.double() @ b.double()).relu().tril()
    error = ((c - exact).abs().max() / exact.abs().max()).item()
    assert error < 1e-5, f"PE {me}: {schedule}: relative error {error:.1e}"

lowest, highest = shmem.empty_like(c), shmem.empty_like(c)  # over all PEs
shmem.min_reduce(lowest, c, team=team)
shmem.max_reduce(highest, c, team=team)
assert torch.equal(lowest, highest), f"PE {me}: the PEs have different bits"
if me == 0:
    print(f"{n_pes} PEs: all have the lower triangle of relu(A @ B), {M} x {N} x {K}, by 2 schedules, with equal bits")
ops.clear()
shmem.finalize()
