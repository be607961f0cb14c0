"""The bins of a histogram are distributed over the PEs; a kernel on each PE counts its own data with atomic_add.

Run: pyshmemrun -n 4 examples/histogram.py
Prints: 4 PEs: 262144 values counted into 1000 bins, every bin right"""

import pyshmem as shmem  # before triton: selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def count(ctx, bins, values, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + i, mask=i < n, other=0)
    owner, bin = value // width, value % width  # blocks of PEs and of indices into their bins
    dev.atomic_add(ctx, bins + bin, 1, owner, mask=i < n, sem="relaxed")  # relaxed: barrier_all follows before any read


def draw(pe):
    """The values of one PE, from 0 to 999 and most of them about 500: sums of nine dice with faces 0 to 111."""
    generator = torch.Generator().manual_seed(pe)
    return torch.randint(0, 112, (n_values, 9), generator=generator, dtype=torch.int32).sum(1, dtype=torch.int32)


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
n_bins, n_values, block = 1000, 65536, 1024

width = triton.cdiv(n_bins, n_pes)  # PE 0 owns bins 0 to width - 1, PE 1 the next width, ...
bins = shmem.zeros(width, dtype=torch.int32)
values = draw(me).to(bins.device)
count[(triton.cdiv(n_values, block),)](shmem.device_context(), bins, values, n_values, width, BLOCK=block)
shmem.barrier_all()  # all additions are complete

everything = torch.cat([draw(pe) for pe in range(n_pes)])
expected = torch.bincount(everything, minlength=n_pes * width)[me * width : (me + 1) * width]
assert torch.equal(bins.cpu().long(), expected), f"PE {me}: bins differ from torch.bincount's"
if me == 0:
    print(f"{n_pes} PEs: {everything.numel()} values counted into {n_bins} bins, every bin right")
shmem.finalize()
