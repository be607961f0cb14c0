import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x, all_x = shmem.full(3, me + 1.0), shmem.zeros(n, 3)
shmem.fcollect(all_x, x)
assert all_x[:, 0].tolist() == [pe + 1 for pe in range(n)]
shmem.max_reduce(x, x)
assert (x == n).all()
shmem.sync_all()  # all have read x, which the broadcast writes
shmem.broadcast(x, all_x[0], n - 1, size=3)
assert (x == 1).all()
before = shmem.zeros(1, dtype=torch.int64)
shmem.sum_exscan(before, torch.tensor([10], device=before.device))  # private arrays cost copies
assert before.item() == 10 * me
shmem.finalize()
