"""A sum over all PEs in stages, with two contexts: while the blocks of one stage are in flight in one context, quiet on the
other context completes the blocks of the previous stage, which are then added.

Run: pyshmemrun -n 4 examples/ports/pipelined_reduction.py
Prints: 4 PEs: 65536 sums in 16 stages, two of them on their way at a time, every sum right
After: the pipelined reduction in the examples of OpenSHMEM's contexts, written afresh with three buffers instead of
two: with two, a PE that is one stage ahead writes into the buffer that a slower PE may still be adding."""

import pyshmem as shmem
import torch


def values(pe):
    """What one PE adds to the sums."""
    generator = torch.Generator().manual_seed(pe)
    return torch.randint(-(10**12), 10**12, (n_stages, length), generator=generator)


def send(stage):
    """Start to put this PE's block of a stage to all PEs, itself included, in the stage's context."""
    for i in range(1, n_pes + 1):  # the right neighbour first, so that not all write to PE 0 at once
        to = buffers[stage % 3, me]
        shmem.put_nbi(to, mine[stage], (me + i) % n_pes, ctx=contexts[stage % 2])


def add(stage):
    """Complete the blocks of a stage, on all PEs, and add them."""
    contexts[stage % 2].quiet()
    shmem.sync_all()
    sums[stage] = buffers[stage % 3].sum(0)


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
n_stages, length = 16, 4096

buffers = shmem.zeros(3, n_pes, length, dtype=torch.int64)
contexts = [shmem.Ctx.create(shmem.CTX.PRIVATE) for _ in range(2)]
assert all(contexts), f"PE {me}: no context"
mine = values(me).to(buffers.device)
sums = torch.zeros_like(mine)

send(0)
for stage in range(1, n_stages):
    send(stage)
    add(stage - 1)
add(n_stages - 1)

wrong = (sums.cpu() != sum(values(pe) for pe in range(n_pes))).sum()
assert wrong == 0, f"PE {me}: {wrong} of {sums.numel()} sums are wrong"
for ctx in contexts:
    ctx.destroy()
shmem.barrier_all()
if me == 0:
    print(f"{n_pes} PEs: {sums.numel()} sums in {n_stages} stages, two of them on their way at a time, every sum right")
shmem.finalize()
