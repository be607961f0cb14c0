import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
tickets, owner = shmem.zeros(1, dtype=torch.int64), shmem.full(1, -1, dtype=torch.int64)
mine = shmem.atomic_fetch_add(tickets, 1, 0)  # on PE 0: a different number for each PE
found = shmem.atomic_compare_swap(owner, -1, me, 0)  # the first PE finds -1, the others find the first one
shmem.barrier_all()
assert 0 <= mine < n and shmem.atomic_fetch(tickets, 0) == n
assert shmem.atomic_fetch(owner, 0) == (me if found == -1 else found)
shmem.finalize()
