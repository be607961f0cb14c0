"""C = A @ B, where B is on the next PE: a software-pipelined loop whose loads are remote.

Run: pyshmemrun -n 4 examples/pipelined_loads.py
Prints: 4 PEs: C = A @ B of the next PE, 128 x 128 x 256 in float16, 1 to 4 stages, all equal, relative error 2.1e-07"""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def gemm(ctx, a, b, c, pe, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
    """Make one tile of C. While a step multiplies, the loads of the next STAGES - 1 steps are on their way."""
    rows = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None]
    cols = (tl.program_id(1) * BN + tl.arange(0, BN))[None, :]
    inner = tl.arange(0, BK)
    from_a = a + rows * K + inner[None, :]
    from_b = dev.ptr(ctx, b, pe) + inner[:, None] * N + cols  # plain pointers, to the other PE's memory
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        tile = tl.dot(tl.load(from_a + k), tl.load(from_b + k * N), tile)
    tl.store(c + rows * N + cols, tile)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
M, N, K = 128, 128, 256
right = (me + 1) % n_pes


def matrix(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


b = shmem.array(matrix(me, K, N))
a = matrix(100 + me, M, K).to(b.device)
c = torch.empty(4, M, N, dtype=torch.float32, device=b.device)
shmem.barrier_all()  # every PE has its B
for stages in (1, 2, 3, 4):
    gemm[(M // 64, N // 64)](shmem.device_context(team), a, b, c[stages - 1], right, K, N, 64, 64, 32, stages)
shmem.barrier_all()  # every PE has read its neighbour's B

exact = a.cpu().double() @ matrix(right, K, N).double()
error = ((c[0].cpu() - exact).abs().max() / exact.abs().max()).item()
assert all(torch.equal(each, c[0]) for each in c) and error < 1e-5, f"PE {me}: relative error {error:.1e}"
if me == 0:
    print(
        f"{n_pes} PEs: C = A @ B of the next PE, {M} x {N} x {K} in float16, 1 to 4 stages, all equal, "
        f"relative error {error:.1e}"
    )
shmem.finalize()
