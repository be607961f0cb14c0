import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(ctx, counts, first):
    bins = tl.arange(0, 32) % 4
    dev.atomic_add(ctx, counts + bins, 1, 0)  # a block of additions on PE 0: 8 to each of four counters
    ticket = dev.atomic_fetch_add(ctx, counts + 4, 1, 0)  # one addition, by the whole program
    tl.store(first, ticket)


shmem.init()
n = shmem.n_pes()
counts = shmem.zeros(5, dtype=torch.int64)
ticket = torch.empty(1, dtype=torch.int64, device=counts.device)
kernel[(1,)](shmem.device_context(), counts, ticket)
shmem.barrier_all()
assert 0 <= ticket.item() < n
if shmem.my_pe() == 0:
    assert counts.tolist() == [8 * n] * 4 + [n]
shmem.finalize()
