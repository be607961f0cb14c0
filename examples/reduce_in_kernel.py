"""Reduce and all-reduce inside kernels: of PE 0 with loads from its peers, of all with stores to them, and by one call.

Run: pyshmemrun -n 4 examples/reduce_in_kernel.py
Prints: 4 PEs: 1000 sums on PE 0 by loads, and on all PEs by loads and stores and by dev.all_reduce, all equal
After: reduce and all-reduce as Iris (AMD) introduces them, arXiv 2511.12500; docs/from-iris.md has the other calls."""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def reduce(ctx, target, source, count, root, BLOCK: tl.constexpr):
    """On ``root`` each program loads its block from all PEs."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if dev.my_pe(ctx) == root:
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for pe in range(dev.n_pes(ctx)):
            total += dev.load(ctx, source + places, pe, mask=places < count)
        tl.store(target + places, total, mask=places < count)


@triton.jit
def all_reduce_two_shot(ctx, target, source, count, BLOCK: tl.constexpr):
    """The blocks are dealt to the PEs. Who has a block loads it from all, and stores the sum on all."""
    places = (tl.program_id(0) * dev.n_pes(ctx) + dev.my_pe(ctx)) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for pe in range(dev.n_pes(ctx)):
        total += dev.load(ctx, source + places, pe, mask=places < count)
    for pe in range(dev.n_pes(ctx)):
        dev.store(ctx, target + places, total, pe, mask=places < count)


@triton.jit
def all_reduce_tile(ctx, target, source, count, BLOCK: tl.constexpr):
    """Registers in, registers out: the call has its own memory, and PEs need not meet before or after."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(source + places, mask=places < count, other=0.0)
    tl.store(target + places, dev.all_reduce(ctx, tile, "sum"), mask=places < count)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes, COUNT, BLOCK = team.my_pe(), team.n_pes(), 1000, 256
ctx, blocks = shmem.device_context(team), triton.cdiv(COUNT, BLOCK)
source = shmem.array(torch.arange(COUNT, dtype=torch.float32) + me)
sums, pushed, tiles = (shmem.zeros(COUNT) for _ in range(3))  # allocation is a barrier: all sources are there

reduce[(blocks,)](ctx, sums, source, COUNT, 0, BLOCK)
all_reduce_two_shot[(triton.cdiv(blocks, n_pes),)](ctx, pushed, source, COUNT, BLOCK)
all_reduce_tile[(blocks,)](ctx, tiles, source, COUNT, BLOCK)
shmem.barrier_all()  # completes the stores of all PEs

wanted = n_pes * torch.arange(COUNT, dtype=torch.float32) + sum(range(n_pes))
for name, found in (("reduce", sums if me == 0 else None), ("two shots", pushed), ("tiles", tiles)):
    assert found is None or torch.equal(found.cpu(), wanted), f"PE {me}: {name}: {found}"
if me == 0:
    by = "by loads and stores and by dev.all_reduce"
    print(f"{n_pes} PEs: {COUNT} sums on PE 0 by loads, and on all PEs {by}, all equal")
shmem.finalize()
