"""Trains a GPT block with tensor, sequence, expert and data parallelism: its weights become those of one process.

Pairs of PEs share a replica: the heads of its attention, the columns and rows of its weights, its experts, and its tokens.
Replicas have other sequences, and gradients are averaged over them while backward runs. All in float64, to compare.

Run: pyshmemrun -n 4 examples/gpt_block.py
Prints: 4 PEs: 2 replicas of 2 PEs, 20 steps, loss 2.95 to 0.00, weights differ from those of one process by at most 1e-15"""

import copy
import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import torch
from pyshmem import nn, ops
from pyshmem.ops import torch as tp

shmem.init()
ops.reserve(1 << 20)  # bytes for plans of teams, which do not include all PEs
tensor, data = shmem.TEAM_SHARED.split_2d(2 - shmem.n_pes() % 2)
tp.name_team("tensor", tensor)
device = shmem.zeros(1).device
VOCABULARY, WIDTH, TOKENS, BATCH = 11, 16, 8, 2  # a replica has BATCH sequences of TOKENS


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(WIDTH, 1e-6) for _ in range(3))
        self.attention, self.experts = nn.Attention(WIDTH, heads=4), nn.Experts(WIDTH, 32, experts=4)
        self.up, self.down = torch.nn.Linear(WIDTH, 64), torch.nn.Linear(64, WIDTH)

    def forward(self, words):
        x = self.embed(words)
        x = x + self.attention(self.norms[0](x))
        x = x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))
        return self.head(x + self.experts(self.norms[2](x)))


def loss_of(model, words, following):
    made = model(words).flatten(0, 1)
    return torch.nn.functional.cross_entropy(made, following.flatten(), reduction="sum") / (TOKENS * BATCH)


torch.manual_seed(0)  # the same weights and sequences on all PEs, of which each takes its part
alone = Block().double().to(device)
plan = {"embed": nn.whole, "head": nn.whole, "norms.*": nn.whole, "attention": nn.divided, "experts": nn.divided}
model = nn.parallelize(copy.deepcopy(alone), plan | {"up": nn.columns(), "down": nn.rows}, team="tensor")
reducer = ops.GradientReducer(model, team=data)
optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01) for each in (model, alone)]
step = torch.arange(TOKENS + 1)[:, None]
losses = []
for _ in range(20):
    words = (step * 3 + torch.randint(VOCABULARY, (1, BATCH * data.n_pes()))).to(device) % VOCABULARY
    pairs = words[:-1], words[1:]
    own = [each.chunk(data.n_pes(), 1)[data.my_pe()].chunk(tensor.n_pes())[tensor.my_pe()] for each in pairs]
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss_of(model, *own).backward()  # the sum over the tensor team, the average over the others
    losses.append(loss_of(alone, *pairs) / data.n_pes())
    losses[-1].backward()
    nn.clip_grad_norm_(model, 1.0, team="tensor")
    torch.nn.utils.clip_grad_norm_(alone.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()

state, right = nn.gather_state_dict(model), alone.state_dict()
error = max((state[name] - right[name]).abs().max().item() for name in right)
assert error < 1e-10, f"PE {shmem.my_pe()}: weights differ by {error:.1e}"
if shmem.my_pe() == 0:
    print(
        f"{shmem.n_pes()} PEs: {data.n_pes()} replicas of {tensor.n_pes()} PEs, 20 steps, loss {losses[0]:.2f} to "
        f"{losses[-1]:.2f}, weights differ from those of one process by at most {error:.0e}"
    )
reducer.close()
tp.clear()
shmem.finalize()
