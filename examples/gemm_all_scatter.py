"""C = A @ B with communication inside the kernel: each PE computes its columns of C and stores each tile on all PEs.

Run: pyshmemrun -n 4 examples/gemm_all_scatter.py
Prints: 4 PEs: all have C = A @ B, 512 x 512 x 512 in float16, relative error 2.0e-07
After: GEMM + all-scatter of Iris (AMD), arXiv 2511.12500."""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def gemm_all_scatter(ctx, a, b, c, N, K, first, width, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Make one tile of a (M, K) @ b (K, width) and store it on all PEs. b's columns are c's (M, N) from first on."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    column = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a_tile = tl.load(a + row * K + k + tl.arange(0, BK)[None, :])
        b_tile = tl.load(b + (k + tl.arange(0, BK)[:, None]) * width + column, mask=column < width, other=0.0)
        tile = tl.dot(a_tile, b_tile, tile)
    for i in range(dev.n_pes(ctx)):
        pe = (dev.my_pe(ctx) + i) % dev.n_pes(ctx)  # each PE begins with itself, so that they do not all write to PE 0
        dev.store(ctx, c + row * N + first + column, tile, pe, mask=column < width)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
M = N = K = 512
block = 64  # divides M and K; the number of columns of a PE need not be a multiple of it

c = shmem.zeros(M, N, dtype=torch.float32)
torch.manual_seed(0)  # the same A and B on all PEs
a, b = torch.randn(M, K).half().to(c.device), torch.randn(K, N).half().to(c.device)
first, last = N * me // n_pes, N * (me + 1) // n_pes
my_b = b[:, first:last].contiguous()  # the kernel reads no other part of B

grid = (M // block, triton.cdiv(last - first, block))
ctx = shmem.device_context(team)
gemm_all_scatter[grid](ctx, a, my_b, c, N, K, first, last - first, BM=block, BN=block, BK=block)
shmem.barrier_all()  # completes all stores: every C has the tiles of every PE

exact = a.double() @ b.double()
error = ((c - exact).abs().max() / exact.abs().max()).item()
assert error < 1e-5, f"PE {me}: relative error {error:.1e}"
if me == 0:
    print(f"{n_pes} PEs: all have C = A @ B, {M} x {N} x {K} in float16, relative error {error:.1e}")
shmem.finalize()
