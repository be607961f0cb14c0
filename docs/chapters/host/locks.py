import pyshmem as shmem
import torch

shmem.init()
n = shmem.n_pes()
lock, balance = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
for _ in range(10):
    shmem.set_lock(lock)
    shmem.p(balance, shmem.g(balance, 0) + 1, 0)  # read and write: nobody else is in between
    shmem.clear_lock(lock)
shmem.barrier_all()
assert shmem.g(balance, 0) == 10 * n
own = shmem.Lock()
with own:  # the same, with a word of its own
    pass
own.destroy()
shmem.finalize()
