"""A small network trained on all PEs, each with its part of the data: the weights are those that one PE gets with all of it.

GradientReducer averages the gradients while backward makes more of them; when backward returns, they are there.

Run: pyshmemrun -n 4 examples/data_parallel.py
Prints: 4 PEs: 20 steps, the loss fell from 7.36 to 1.42, and the weights are those of one PE up to 6.2e-06"""

import copy

import pyshmem as shmem
import torch
from pyshmem import ops

shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
device = shmem.zeros(1).device  # that of the symmetric heap
SAMPLES, STEPS = 96, 20  # of all PEs; n_pes divides the samples, so that averages of averages are right

torch.manual_seed(me)  # other weights on each PE: the reducer sends all those of PE 0
model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh())
model.append(torch.nn.Linear(32, 1)).to(device)
reducer = ops.GradientReducer(model)
alone = copy.deepcopy(model)

x = torch.rand(SAMPLES, 4, generator=torch.Generator().manual_seed(7)).to(device)  # the same on all PEs
y = (3 * x).sin().sum(1, keepdim=True)
mine = x.tensor_split(n_pes)[me], y.tensor_split(n_pes)[me]


def train(network, samples, wanted):
    """Return the losses of all steps."""
    optimizer, losses = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (network(samples) - wanted).square().mean()
        loss.backward()  # the gradients are averaged when it returns
        optimizer.step()
        losses.append(loss.item())
    return losses


train(model, *mine)
losses = train(alone, x, y)
pairs = zip(model.parameters(), alone.parameters(), strict=True)
error = max(((each - other).abs().max() / other.abs().max()).item() for each, other in pairs)
assert error < 1e-4 and losses[-1] < losses[0], f"PE {me}: relative error {error:.1e}, losses {losses}"
if me == 0:
    fell = f"the loss fell from {losses[0]:.2f} to {losses[-1]:.2f}"
    print(f"{n_pes} PEs: {STEPS} steps, {fell}, and the weights are those of one PE up to {error:.1e}")
reducer.close()
shmem.finalize()
