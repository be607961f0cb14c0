"""C = A @ B on a mesh of PEs, as in SUMMA, beside ops.all_gather_gemm, which divides A's rows and B's columns over all PEs.

Run: pyshmemrun -n 4 examples/summa.py
Prints: 4 PEs: C = A @ B, 128 x 128 x 256, on a 2 x 2 mesh and by all_gather_gemm, relative errors 2.2e-07 and 3.1e-04

Each PE keeps its part of C. It reads panels of A from its row of the mesh, and panels of B from its column: of 2 x 2 PEs
each gets a quarter of A and a quarter of B from others, where all_gather_gemm sends three quarters of A to each."""

import math

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl
from pyshmem import ops


@triton.jit
def summa(a, b, c, K, first, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Make one tile of this PE's part of C. The sum begins at panel ``first``, which differs between the readers of a PE."""
    row = dev.global_index(c, tl.program_id(0) * BM, dev.my_place(c, 0), dim=0)
    col = dev.global_index(c, tl.program_id(1) * BN, dev.my_place(c, 1), dim=1)
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, K, BK):
        k = (first * BK + step) % K
        tile = tl.dot(dev.load_tile(a, row, k, BM, BK), dev.load_tile(b, k, col, BK, BN), tile)
    dev.store_tile(c, row, col, tile)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
ops.reserve(1 << 20)  # bytes for plans of teams, which may not include all PEs
M, N, K = 128, 128, 256
BM, BN, BK = 32, 32, 64  # blocks of the distribution and tiles of the kernel: a tile never crosses blocks
height = max(h for h in range(1, math.isqrt(n_pes) + 1) if n_pes % h == 0)
mesh = height, n_pes // height

torch.manual_seed(0)  # the same A and B on all PEs
whole_a, whole_b = torch.randn(M, K).half(), torch.randn(K, N).half()
a = shmem.partitioned((M, K), dtype=torch.float16, mesh=mesh, block=(BM, BK), team=team)
b = shmem.partitioned((K, N), dtype=torch.float16, mesh=mesh, block=(BK, BN), team=team)
c = shmem.partitioned((M, N), dtype=torch.float32, mesh=mesh, block=(BM, BN), team=team)
a.scatter(whole_a)
b.scatter(whole_b)
tiles = tuple(extent // block for extent, block in zip(c.layout.shape_of(me), (BM, BN), strict=True))
if all(tiles):
    summa[tiles](a.partition, b.partition, c.partition, K, sum(c.layout.place_of(me)), BM, BN, BK)
found = c.gather()  # waits for all PEs' kernels

my_a = whole_a.tensor_split(n_pes)[me].to(found.device)
my_b = whole_b.tensor_split(n_pes, dim=1)[me].contiguous().to(found.device)
columns = ops.all_gather_gemm(my_a, my_b, size=M, columns=N, team=team)

exact = whole_a.double() @ whole_b.double()
theirs = exact.tensor_split(n_pes, dim=1)[me]
errors = [((x.cpu() - y).abs().max() / y.abs().max()).item() for x, y in ((found, exact), (columns, theirs))]
assert errors[0] < 1e-5 and errors[1] < 1e-3, f"PE {me}: relative errors {errors}"  # the second result is in float16
if me == 0:
    ways = f"on a {mesh[0]} x {mesh[1]} mesh and by all_gather_gemm"
    print(f"{n_pes} PEs: C = A @ B, {M} x {N} x {K}, {ways}, relative errors {errors[0]:.1e} and {errors[1]:.1e}")
ops.clear()
shmem.finalize()
