import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
total = shmem.full(1, me, dtype=torch.int64)
with shmem.TEAM_WORLD.split_strided(0, 2) as even:  # PEs 0, 2, ...; false on the others
    if even:
        shmem.sum_reduce(total, total, team=even)
        assert total.item() == sum(range(0, n, 2))
        assert even.translate_pe(even.my_pe(), shmem.TEAM_WORLD) == me
row, column = shmem.TEAM_WORLD.split_2d(2)  # rows of two PEs
assert row.my_pe() == me % 2 and column.my_pe() == me // 2
shmem.finalize()
