"""Three kernels over all PEs, written as for one GPU: a product whose rows are distributed, an all-reduce, a reduce-scatter.

Run: pyshmemrun -n 4 examples/device_grid.py
Prints: 4 PEs: rows of A @ B, relative error 3.1e-07; x + y summed on all PEs; rows of sums on their PEs
After: the three uses of Iris (AMD) in its lecture for GPU MODE, number 78: a matrix product with rows on several GPUs,
an all-reduce of sums, and a reduce-scatter. The kernels name no context, and shmem.grid launches them on all PEs."""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@shmem.jit
def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile of C, on the PE that owns it. B's rows come from the PEs that have them."""
    row, col = dev.my_tile(c, BM, BN)
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        tile = tl.dot(dev.load_tile(a, row, k, BM, BK), dev.load_tile(b, k, col, BK, BN), tile)
    dev.store_tile(c, row, col, tile)


@shmem.jit
def add_all_reduce(out, x, y, count, BLOCK: tl.constexpr):
    """out = the sum over all PEs of their x + y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + at, mask=at < count, other=0.0) + tl.load(y + at, mask=at < count, other=0.0)
    tl.store(out + at, dev.all_reduce(tile, "sum"), mask=at < count)


@shmem.jit
def add_reduce_scatter(out, x, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """out = this PE's row of the sum over all PEs of their x, which has a row for each PE."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.arange(0, ROWS)
    there = x + rows[:, None] * tl.num_programs(0) * BLOCK + at[None, :]
    tile = tl.load(there, mask=rows[:, None] < dev.n_pes(), other=0.0)
    tl.store(out + at, dev.reduce_scatter(tile, "sum"))


shmem.init()
me, n_pes, M, N, K, COUNT = shmem.my_pe(), shmem.n_pes(), 256, 64, 128, 1024
torch.manual_seed(0)  # the same on all PEs, to check the results
whole_a, whole_b, x = torch.randn(M, K).half(), torch.randn(K, N).half(), torch.randn(n_pes, n_pes, COUNT)
a = shmem.partitioned((M, K), dtype=torch.float16, block=32)  # rows in blocks of 32, dealt to the PEs
b = shmem.partitioned((K, N), dtype=torch.float16, block=32)
c = shmem.partitioned((M, N), block=32)
a.scatter(whole_a)
b.scatter(whole_b)
matmul[shmem.grid(lambda meta: (M // meta["BM"], N // meta["BN"]), partition=c)](a, b, c, K, BM=32, BN=64, BK=32)
product, exact = c.gather().cpu().double(), whole_a.double() @ whole_b.double()
error = ((product - exact).abs().max() / exact.abs().max()).item()

mine = x[me].to(c.local.device)  # any memory: tiles travel through memory of their own
sums, row = torch.empty_like(mine[0]), torch.empty_like(mine[0])
add_all_reduce[shmem.grid(COUNT // 256)](sums, mine[0], mine[-1], COUNT, BLOCK=256)
add_reduce_scatter[shmem.grid(COUNT // 256)](row, mine, triton.next_power_of_2(n_pes), BLOCK=256)
wanted = (x[:, 0] + x[:, -1]).double().sum(0), x[:, me].double().sum(0)

assert error < 1e-5, f"PE {me}: relative error {error:.1e}"
for found, exact in zip((sums, row), wanted, strict=True):
    torch.testing.assert_close(found.cpu().double(), exact, rtol=1e-5, atol=1e-5)
if me == 0:
    print(f"{n_pes} PEs: rows of A @ B, relative error {error:.1e}; x + y summed on all PEs; rows of sums on their PEs")
shmem.finalize()
