import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(ctx, came, values, none, found):
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    for pe in range(n):
        dev.p(ctx, came + me, me + 1, pe)
    tl.store(found, dev.wait_until_any(ctx, came, n, none, dev.CMP_GT, 0))
    dev.wait_until_all_vector(ctx, came, n, none, dev.CMP_EQ, values)


shmem.init()
n = shmem.n_pes()
came = shmem.zeros(n, dtype=torch.int64)  # a word for each PE
values, none = torch.arange(1, n + 1, device=came.device), torch.zeros(n, dtype=torch.int32, device=came.device)
found = torch.empty(1, dtype=torch.int64, device=came.device)
shmem.launch(kernel, 1, came, values, none, found)
assert 0 <= found.item() < n and came.tolist() == values.tolist()
shmem.finalize()
