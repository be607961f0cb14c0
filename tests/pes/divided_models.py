"""A GPT block of pyshmem.nn, in one process and divided, which tests compare in float64."""

import copy

import pyshmem as shmem
import torch
from pyshmem import nn
from support import here

WIDTH, TOKENS, BATCH = 12, 12, 2  # 1 to 4 PEs divide them
BOUND = 1e-10


class Block(torch.nn.Module):
    """``unused`` has no gradient, and some weights are frozen. run: how a part is run."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(7, WIDTH), torch.nn.Linear(WIDTH, 7)
        self.norms = torch.nn.ModuleList([torch.nn.RMSNorm(WIDTH, 1e-6), torch.nn.LayerNorm(WIDTH)])
        self.attention, self.context = nn.Attention(WIDTH, heads=12, bias=True), nn.Attention(WIDTH, heads=3)
        self.experts = nn.Experts(WIDTH, 4, experts=12)
        self.up, self.down = torch.nn.Linear(WIDTH, 24), torch.nn.Linear(24, WIDTH)
        self.unused = torch.nn.Linear(WIDTH, WIDTH)
        for each in (self.norms[1].bias, self.up.weight):
            each.requires_grad_(False)
        self.run = plainly

    def attended(self, x):
        normal = self.norms[0](x)
        return x + self.attention(normal) + self.context(normal)

    def mixed(self, x):
        return x + self.experts(self.down(torch.relu(self.up(self.norms[1](x)))))

    def forward(self, words):
        return self.head(self.run(self.mixed, self.run(self.attended, self.embed(words))))


PLAN = {
    "embed": nn.whole, "head": nn.whole, "norms.*": nn.whole, "attention": nn.divided, "context": nn.context(),
    "up": nn.columns(), "down": nn.rows, "unused": nn.columns(), "experts": nn.divided,
}  # fmt: skip


def plainly(part, x):
    return part(x)


def pair(team="world"):
    """A model in one process, the same on all PEs, and its shares."""
    torch.manual_seed(0)
    alone = Block().double().to(here())
    return alone, nn.parallelize(copy.deepcopy(alone), PLAN, team)


def words(turn):
    return torch.randint(7, (TOKENS, BATCH), generator=torch.Generator().manual_seed(turn)).to(here())


def mine(whole):
    return whole.chunk(shmem.n_pes())[shmem.my_pe()]


def same(model, alone):
    alike(nn.gather_state_dict(model), alone.state_dict())


def alike(state, right):
    assert state.keys() == right.keys()
    for name, each in right.items():
        torch.testing.assert_close(state[name], each, rtol=0, atol=BOUND, msg=name)
