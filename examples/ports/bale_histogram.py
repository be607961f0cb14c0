"""Every PE counts random indices in a table that is distributed cyclically over the PEs. It does so twice, with the same
call: in a host loop of atomic_add on single words, and in a kernel that updates a block of words at once.

Run: pyshmemrun -n 4 examples/ports/bale_histogram.py
Prints: 4 PEs: 16384 updates of 4000 counters by host calls and by a kernel, every counter right
After: histo of bale (IDA), https://github.com/jdevinney/bale, written afresh."""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def count(ctx, table, indices, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + i, mask=i < n, other=0)
    place, pe = index // dev.n_pes(ctx), index % dev.n_pes(ctx)
    dev.atomic_add(ctx, table + place, 1, pe, mask=i < n, sem="relaxed")  # relaxed: barrier_all follows before any read


def draw(pe):
    """The indices that one PE counts."""
    return torch.randint(0, n_pes * per_pe, (n_indices,), generator=torch.Generator().manual_seed(pe))


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
per_pe, n_indices, block = 1000, 4096, 512

by_host, by_kernel = shmem.zeros(2, per_pe, dtype=torch.int64)
indices = draw(me)

for index in indices.tolist():
    shmem.atomic_add(by_host[index // n_pes], 1, index % n_pes)

grid = (triton.cdiv(n_indices, block),)
count[grid](shmem.device_context(), by_kernel, indices.to(by_kernel.device), n_indices, BLOCK=block)
shmem.barrier_all()  # all additions are complete

everything = torch.cat([draw(pe) for pe in range(n_pes)])
expected = torch.bincount(everything, minlength=n_pes * per_pe)[me::n_pes]
for way, table in ("host calls", by_host), ("the kernel", by_kernel):
    wrong = (table.cpu() != expected).sum()
    assert wrong == 0, f"PE {me}: {wrong} counters by {way} differ from torch.bincount's"

shmem.barrier_all()
if me == 0:
    size = f"{len(everything)} updates of {n_pes * per_pe} counters"
    print(f"{n_pes} PEs: {size} by host calls and by a kernel, every counter right")
shmem.finalize()
