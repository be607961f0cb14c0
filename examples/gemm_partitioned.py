"""C = A @ B of partitioned tensors: each PE computes its rows of C, and its kernel reads A and B by global index.

Run: pyshmemrun -n 4 examples/gemm_partitioned.py
Prints: 4 PEs: C = A @ B, 256 x 256 x 256 in float16, rows in blocks of 32 in turn, relative error 2.2e-07"""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def gemm(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Make one tile of this PE's rows of C. B's rows come from whoever has them, a block at a time."""
    row = dev.global_index(c, tl.program_id(0) * BM, dev.my_pe(c.ctx))
    col = tl.program_id(1) * BN
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, a.cols, BK):
        tile = tl.dot(dev.load_tile(a, row, k, BM, BK), dev.load_tile(b, k, col, BK, BN), tile)
    dev.store_tile(c, row, col, tile)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
M = N = K = 256
block = 32  # block of the distribution and rows of a tile: a tile never crosses blocks

a = shmem.partitioned((M, K), dtype=torch.float16, block=block, team=team)
b = shmem.partitioned((K, N), dtype=torch.float16, block=block, team=team)
c = shmem.partitioned((M, N), dtype=torch.float32, block=block, team=team)
torch.manual_seed(0)
whole_a, whole_b = torch.randn(M, K).half(), torch.randn(K, N).half()
a.scatter(whole_a, root=0)  # from PE 0 to all PEs; here every PE has it, to check the result
b.scatter(whole_b, root=n_pes - 1)

grid = (triton.cdiv(c.layout.n_local(me), block), N // 64)
if c.layout.n_local(me):
    gemm[grid](a.partition, b.partition, c.partition, BM=block, BN=64, BK=block)
found = c.gather()  # waits for all PEs' kernels

exact = whole_a.double() @ whole_b.double()
error = ((found.cpu() - exact).abs().max() / exact.abs().max()).item()
assert error < 1e-5, f"PE {me}: relative error {error:.1e}"
if me == 0:
    cut = f"{M} x {N} x {K} in float16, rows in blocks of {block} in turn"
    print(f"{n_pes} PEs: C = A @ B, {cut}, relative error {error:.1e}")
shmem.finalize()
