import pyshmem as shmem
import torch
from pyshmem import ops

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()

a = shmem.full((8, 16), 1.0 + me)  # this PE's rows of A
b = shmem.ones((16, 4))
c = ops.gemm_all_gather(a, b)  # all rows of A @ B, on all PEs
assert c.shape == (8 * n, 4)
assert c[::8, 0].tolist() == [16.0 * (1 + pe) for pe in range(n)]

total = ops.gemm_all_reduce(a, b)  # a and b are this PE's parts of K: the sum over all PEs
assert torch.equal(total, torch.full_like(total, 16.0 * n * (n + 1) / 2))

ops.clear()  # frees the memory of all plans
shmem.finalize()
