import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton


@triton.jit
def kernel(row, world, x):
    right = (dev.my_pe(row) + 1) % dev.n_pes(row)
    dev.p(world, x, dev.my_pe(world), dev.translate_pe(row, right, world))


shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x = shmem.zeros(1, dtype=torch.int32)
row, _ = shmem.TEAM_WORLD.split_2d(2)  # rows of two PEs
kernel[(1,)](shmem.device_context(row), shmem.device_context(), x)
shmem.barrier_all()
left = (row.my_pe() - 1) % row.n_pes()
assert x.item() == row.translate_pe(left, shmem.TEAM_WORLD)
shmem.finalize()
