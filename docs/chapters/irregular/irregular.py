import pyshmem as shmem
import torch
from pyshmem import irregular

shmem.init()
n = shmem.n_pes()

rows = 4 * n
here = shmem.zeros(1).device
matrix = irregular.csr(2 * torch.eye(rows, device=here).to_sparse())  # the same on all PEs
x = torch.arange(float(rows), device=here)
assert torch.equal(irregular.spmv(matrix, x), 2 * x)  # on this PE alone

me = shmem.my_pe()
plan = irregular.plan(matrix, cut="rows")  # rows and vectors divided over all PEs
own = slice(plan.starts[me], plan.starts[me + 1])
assert torch.equal(plan(x[own].contiguous()), 2 * x[own])
plan.close()
shmem.finalize()
