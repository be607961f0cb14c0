import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(ctx, x):
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    there = dev.ptr(ctx, x, (me + 1) % n)  # x of the right neighbour, for Triton's own loads and stores
    tl.store(there + tl.arange(0, 16), me)


shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x = shmem.zeros(16, dtype=torch.int32)
kernel[(1,)](shmem.device_context(), x)
shmem.barrier_all()
assert (x == (me - 1) % n).all()
shmem.finalize()
