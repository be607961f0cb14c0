import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(ctx, inbox, arrived, source, total, n: tl.constexpr):
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.put_signal(ctx, inbox, source, n, arrived, 1, dev.SIGNAL_ADD, right)
    dev.signal_wait_until(ctx, arrived, dev.CMP_GE, 1)  # the data of this signal are here
    tl.store(total, tl.sum(tl.load(inbox + tl.arange(0, n)), axis=0))


shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
inbox, arrived = shmem.zeros(64), shmem.zeros(1, dtype=torch.uint64)
source, total = (torch.full((size,), float(me), device=inbox.device) for size in (64, 1))
shmem.launch(kernel, 1, inbox, arrived, source, total, 64)  # on all PEs, after all have compiled it
assert total.item() == 64 * ((me - 1) % n)
shmem.finalize()
