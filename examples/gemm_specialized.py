"""C = A @ B by programs of two kinds: most multiply and set a flag for each tile, a few wait for flags and send the tiles.

First they are one kernel (workgroup-specialized), then two on two streams (producer and consumer).

Run: pyshmemrun -n 4 examples/gemm_specialized.py
Prints: 4 PEs: C = A @ B by one kernel and by two, 128 x 128 x 128 in float16, relative error 2.0e-07
After: the taxonomy of Iris (AMD), arXiv 2511.12500."""

from contextlib import nullcontext
import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl

MULTIPLY, SEND = tl.constexpr(60), tl.constexpr(12)  # programs: a GPU runs all of them at once


@triton.jit
def multiply_or_send(ctx, a, b, c, flags, base, N, first, width, BLOCK: tl.constexpr):
    """The first MULTIPLY programs make tiles of a (N, N) @ b (N, width), columns of c from first on. base: of this grid."""
    program, me, columns = base + tl.program_id(0), dev.my_pe(ctx), tl.cdiv(width, BLOCK)
    sends = program >= MULTIPLY
    start, step = tl.where(sends, program - MULTIPLY, program), tl.where(sends, SEND, MULTIPLY)
    for index in range(start, N // BLOCK * columns, step):
        row = index // columns * BLOCK + tl.arange(0, BLOCK)[:, None]
        column = index % columns * BLOCK + tl.arange(0, BLOCK)[None, :]
        places, mask = c + row * N + first + column, (row < N) & (column < width)
        if sends:
            dev.signal_wait_until(ctx, flags + index, dev.CMP_EQ, 1)
            sent = tl.load(places, mask=mask)
            for i in range(1, dev.n_pes(ctx)):
                dev.store(ctx, places, sent, (me + i) % dev.n_pes(ctx), mask=mask)
        else:
            tile = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
            for k in range(0, N, BLOCK):
                inner = k + tl.arange(0, BLOCK)
                b_tile = tl.load(b + inner[:, None] * width + column, mask=column < width, other=0.0)
                tile = tl.dot(tl.load(a + row * N + inner[None, :]), b_tile, tile)
            tl.store(places, tile, mask=mask)
            dev.signal_set(ctx, flags + index, 1, me)


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
N, block = 128, 32  # block divides N
c = shmem.zeros(N, N, dtype=torch.float32)
flags = shmem.zeros(2, (N // block) * triton.cdiv(N, block), dtype=torch.uint64)  # a row for each form
torch.manual_seed(0)  # the same A and B on all PEs
a, b = torch.randn(N, N).half().to(c.device), torch.randn(N, N).half().to(c.device)
first, last = N * me // n_pes, N * (me + 1) // n_pes
my_b, exact = b[:, first:last].contiguous(), a.double() @ b.double()
ctx = shmem.device_context(team)
side = torch.cuda.stream(torch.cuda.Stream()) if c.is_cuda else nullcontext()
programs = MULTIPLY.value + SEND.value

for own, grids in zip(flags, ([(0, programs)], [(0, MULTIPLY.value), (MULTIPLY.value, SEND.value)]), strict=True):
    for base, count in grids:
        with side if base else nullcontext():
            multiply_or_send[(count,)](ctx, a, my_b, c, own, base, N, first, last - first, BLOCK=block)
    if c.is_cuda:
        torch.cuda.synchronize()
    shmem.barrier_all()  # completes all stores: every C has the tiles of every PE
    error = ((c - exact).abs().max() / exact.abs().max()).item()
    assert error < 1e-5, f"PE {me}: relative error {error:.1e}"
    c.zero_()
    shmem.barrier_all()
if me == 0:
    print(f"{n_pes} PEs: C = A @ B by one kernel and by two, {N} x {N} x {N} in float16, relative error {error:.1e}")
shmem.finalize()
