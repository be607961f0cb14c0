"""A pipeline with a stage on each PE: activations go forward, gradients back, and the gradients are those of one PE.

Microbatches follow each other: while a stage has one, the stage before it has the next one. A send puts data and flag into
a slot of the next PE; where all slots are taken, it waits there, on the GPU.

Run: pyshmemrun -n 4 examples/pipeline.py
Prints: 4 PEs: 4 stages, 6 microbatches, gradients as on one PE up to 0.0e+00"""

import pyshmem as shmem
import torch
from pyshmem import ops

shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
device = shmem.zeros(1).device  # that of the symmetric heap
MICROBATCHES, SAMPLES, WIDTH = 6, 8, 16
first, last = me == 0, me == n_pes - 1

torch.manual_seed(0)  # the same numbers on all PEs
stages = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).to(device) for _ in range(n_pes)]
batches = torch.randn(MICROBATCHES, SAMPLES, WIDTH).to(device)


def loss_of(output):
    return output.square().mean() / MICROBATCHES


held = []  # what a stage has received and made of each microbatch
for batch in batches:
    x = batch if first else ops.recv_activations(torch.empty_like(batch), pe=me - 1).requires_grad_()
    y = stages[me](x)
    if not last:
        ops.send_activations(y, pe=me + 1)
    held.append((x, y))
for x, y in held:
    if last:
        loss_of(y).backward()
    else:
        y.backward(ops.recv_activations(torch.empty_like(y), pe=me + 1))
    if not first:
        ops.send_activations(x.grad, pe=me - 1)

mine = [each.grad for each in stages[me].parameters()]
stages[me].zero_grad()
for batch in batches:  # the same on one PE
    loss_of(torch.nn.Sequential(*stages)(batch)).backward()
pairs = zip(mine, stages[me].parameters(), strict=True)
error = max(((grad - each.grad).abs().max() / each.grad.abs().max()).item() for grad, each in pairs)
assert error < 1e-5, f"PE {me}: relative error {error:.1e}"
if me == 0:
    print(f"{n_pes} PEs: {n_pes} stages, {MICROBATCHES} microbatches, gradients as on one PE up to {error:.1e}")
ops.clear()
shmem.finalize()
