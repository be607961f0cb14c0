import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(ctx, x, y, source, n: tl.constexpr):
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.put(ctx, x, source, n, right)  # the whole program copies n elements
    i = tl.arange(0, n)
    block = tl.load(source + i) + 1
    dev.store(ctx, y + i, block, right, i < n - 1)  # a block from registers, with a mask as tl.store has


shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x, y = shmem.zeros(64), shmem.zeros(64)
source = torch.full((64,), float(me), device=x.device)
kernel[(1,)](shmem.device_context(), x, y, source, 64)
shmem.barrier_all()
left = (me - 1) % n
assert (x == left).all() and (y[:63] == left + 1).all() and y[63] == 0
shmem.finalize()
