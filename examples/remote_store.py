"""A kernel on PE 0 stores a value in every element of PE 1's buffer: the first program that one writes with Iris.

Run: pyshmemrun -n 4 examples/remote_store.py
Prints: 4 PEs: PE 0 has filled the 4096 elements of PE 1
After: the quick start of Iris (AMD), arXiv 2511.12500; docs/from-iris.md has the other calls."""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def fill(ctx, buffer, value, count, pe, BLOCK: tl.constexpr):
    """Store ``value`` in ``count`` elements of the buffer of ``pe``."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.zeros((BLOCK,), dtype=tl.float32) + value
    dev.store(ctx, buffer + places, values, pe, mask=places < count)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
target = 1 % n_pes  # with one PE, itself

buffer = shmem.zeros(4096, dtype=torch.float32)  # symmetric: every PE has one
if me == 0:
    fill[(triton.cdiv(buffer.numel(), 1024),)](
        shmem.device_context(team), buffer, 1.0, buffer.numel(), target, BLOCK=1024
    )
shmem.barrier_all()  # completes the kernel's stores, on all PEs

wanted = 1.0 if me == target else 0.0
assert (buffer == wanted).all(), f"PE {me}: wanted {wanted}, got {buffer.unique().tolist()}"
if me == target:
    print(f"{n_pes} PEs: PE 0 has filled the {buffer.numel()} elements of PE {target}")
shmem.finalize()
