"""Every PE reads random elements of a table that is distributed cyclically over the PEs: target[i] = table[index[i]]. It
does so twice: in a host loop of g on single words, and in a kernel that loads a block of words at once.

Run: pyshmemrun -n 4 examples/ports/bale_index_gather.py
Prints: 4 PEs: 16384 elements read from a table of 4000 by host calls and by a kernel, all equal
After: ig (index gather) of bale (IDA), https://github.com/jdevinney/bale, written afresh."""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def gather(ctx, target, table, indices, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + i, mask=i < n, other=0)
    place, pe = index // dev.n_pes(ctx), index % dev.n_pes(ctx)
    tl.store(target + i, dev.load(ctx, table + place, pe, mask=i < n), mask=i < n)  # target is private: Triton's store


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
per_pe, n_indices, block = 1000, 4096, 512

everything = torch.randint(-(2**60), 2**60, (n_pes * per_pe,), generator=torch.Generator().manual_seed(0))
table = shmem.array(everything[me::n_pes])  # element i of everything is element i // n_pes of PE i % n_pes
indices = torch.randint(0, len(everything), (n_indices,), generator=torch.Generator().manual_seed(1 + me))

by_host = torch.tensor([shmem.g(table[index // n_pes], team.translate_pe(index % n_pes)) for index in indices.tolist()])

by_kernel = torch.zeros(n_indices, dtype=table.dtype, device=table.device)
grid = (triton.cdiv(n_indices, block),)
gather[grid](shmem.device_context(team), by_kernel, table, indices.to(table.device), n_indices, BLOCK=block)

for way, target in ("host calls", by_host), ("the kernel", by_kernel):
    wrong = (target.cpu() != everything[indices]).sum()
    assert wrong == 0, f"PE {me}: {wrong} elements by {way} are not the table's"

shmem.barrier_all()
if me == 0:
    size = f"{n_pes * n_indices} elements read from a table of {len(everything)}"
    print(f"{n_pes} PEs: {size} by host calls and by a kernel, all equal")
shmem.finalize()
