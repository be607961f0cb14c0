import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
came = shmem.zeros(n, dtype=torch.int64)  # a word for each PE
for pe in range(n):
    shmem.p(came[me], 1 + me, pe)
first = shmem.wait_until_any(came, ">", 0)
assert came[first] == 1 + first
shmem.wait_until_all_vector(came, "==", [1 + pe for pe in range(n)])
assert shmem.test_all(came, ">", 0) and shmem.test_some(came, ">", n - 1) == [n - 1]
shmem.finalize()
