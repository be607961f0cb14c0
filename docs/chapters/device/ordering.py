import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton


@triton.jit
def kernel(ctx, x, flag, source, n):
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.put(ctx, x, source, n, right)
    dev.fence(ctx)  # the flag arrives after the data; quiet would also complete them
    dev.p(ctx, flag, 1, right)
    dev.wait_until(ctx, flag, dev.CMP_EQ, 1)


shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x, flag = shmem.zeros(1000), shmem.zeros(1, dtype=torch.int64)
source = torch.full((1000,), float(me), device=x.device)
shmem.launch(kernel, 1, x, flag, source, 1000)
assert (x == (me - 1) % n).all()
shmem.finalize()
