"""pyshmem.nn: divided models against the same model in one process, in float64, and their states."""

import copy
from functools import partial

import pyshmem as shmem
import pytest
import torch
from pyshmem import nn
from support import here, refuses
from torch.utils.checkpoint import checkpoint
from torch_graphs import compiled

pytestmark = pytest.mark.usefixtures("fresh")

WIDTH, TOKENS, BATCH = 12, 12, 2  # 1 to 4 PEs divide them
BOUND = 1e-10


class Block(torch.nn.Module):
    """``unused`` has no gradient, and embed's weight is frozen. run: how a part is run."""

    def __init__(self, experts=True):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(7, WIDTH), torch.nn.Linear(WIDTH, 7)
        self.norms = torch.nn.ModuleList([torch.nn.RMSNorm(WIDTH, 1e-6), torch.nn.LayerNorm(WIDTH)])
        self.attention = nn.Attention(WIDTH, heads=12, bias=True)
        self.experts = nn.Experts(WIDTH, 4, experts=12) if experts else torch.nn.Identity()
        self.up, self.down = torch.nn.Linear(WIDTH, 24), torch.nn.Linear(24, WIDTH)
        self.unused = torch.nn.Linear(WIDTH, WIDTH)
        self.embed.requires_grad_(False)
        self.run = lambda part, x: part(x)

    def attended(self, x):
        return x + self.attention(self.norms[0](x))

    def mixed(self, x):
        return x + self.experts(self.down(torch.relu(self.up(self.norms[1](x)))))

    def forward(self, words):
        x = self.embed(words)
        x = x if x.requires_grad else x.requires_grad_()  # reentrant checkpoints want it
        return self.head(self.run(self.mixed, self.run(self.attended, x)))


PLAN = {
    "embed": nn.whole, "head": nn.whole, "norms.*": nn.whole, "attention": nn.divided, "up": nn.columns(),
    "down": nn.rows, "unused": nn.columns(),
}  # fmt: skip


def pair(**options):
    """A model in one process, the same on all PEs, and its shares."""
    torch.manual_seed(0)
    alone = Block(**options).double().to(here())
    plan = PLAN | ({"experts": nn.divided} if options.get("experts", True) else {})
    return alone, nn.parallelize(copy.deepcopy(alone), plan)


def words(turn):
    return torch.randint(7, (TOKENS, BATCH), generator=torch.Generator().manual_seed(turn)).to(here())


def mine(whole):
    return whole.chunk(shmem.n_pes())[shmem.my_pe()]


def same(model, alone):
    state, right = nn.gather_state_dict(model), alone.state_dict()
    assert state.keys() == right.keys()
    for name, each in right.items():
        torch.testing.assert_close(state[name], each, rtol=0, atol=BOUND, msg=name)


RUNS = {
    "plain": lambda part, x: part(x),
    "checkpoint": partial(checkpoint, use_reentrant=False),
    "reentrant checkpoint": partial(checkpoint, use_reentrant=True),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_divided_model_trains_as_one_process_does(run):
    """Two backwards for each step, clipped gradients, frozen and unused parameters, and weight decay."""
    alone, model = pair()
    model.run = RUNS[run]
    optimizers = [
        torch.optim.AdamW([p for p in each.parameters() if p.requires_grad], lr=0.01) for each in (alone, model)
    ]
    for turn in range(5):
        norms = []
        for each, part in ((alone, lambda x: x), (model, mine)):
            each.zero_grad()
            for half in (2 * turn, 2 * turn + 1):
                each(part(words(half))).logsumexp(-1).square().sum().backward()
            norms.append(
                torch.nn.utils.clip_grad_norm_(each.parameters(), 1.0)
                if each is alone
                else nn.clip_grad_norm_(each, 1.0)
            )
        torch.testing.assert_close(*norms)
        for optimizer in optimizers:
            optimizer.step()
    assert model.unused.weight.grad is None
    same(model, alone)


def test_states_of_whole_models_load_and_save():
    alone, model = pair()
    same(model, alone)
    other = Block().double().to(here())
    nn.scatter_state_dict(model, other.state_dict())
    same(model, other)
    alone.load_state_dict(nn.gather_state_dict(model))
    same(model, alone)
    assert model.up.weight.shape == (24 // shmem.n_pes(), WIDTH)
    wrong = other.state_dict() | {"up.weight": torch.zeros(5, WIDTH)}
    with refuses("scatter_state_dict", r"state, up.weight: got \(5, 12\); wants \(24, 12\)"):
        nn.scatter_state_dict(model, wrong)
    del wrong["up.weight"]
    with pytest.raises(RuntimeError, match="Missing key.*up.weight"):
        nn.scatter_state_dict(model, wrong)


def test_a_divided_model_is_compiled_in_one_graph():
    alone, model = pair(experts=False)
    for each in (alone, model):
        each.embed.requires_grad_(True)
    found = compiled(model, "aot_eager", [])(mine(words(1)))
    torch.testing.assert_close(found, mine(alone(words(1))), rtol=0, atol=BOUND)
    found.square().sum().backward()
    alone(words(1)).square().sum().backward()
    torch.testing.assert_close(model.norms[0].weight.grad, alone.norms[0].weight.grad, rtol=0, atol=BOUND)
    torch.testing.assert_close(model.up.weight.grad, mine(alone.up.weight.grad), rtol=0, atol=BOUND)


def test_autocast_and_an_infinity_on_one_pe_are_those_of_one_process():
    """The scaled step is left out by all PEs, or by none."""
    kind = here().type
    alone, model = (each.float() for each in pair())
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (alone, model)]
    scalers = [torch.amp.GradScaler(kind, init_scale=256.0), nn.GradScaler(kind, init_scale=256.0)]
    for turn in range(3):
        for each, part, optimizer, scaler in zip((alone, model), (lambda x: x, mine), optimizers, scalers, strict=True):
            each.zero_grad()
            with torch.autocast(kind, dtype=torch.bfloat16):
                loss = each(part(words(turn))).float().square().sum() / TOKENS
            scaler.scale(loss).backward()
            if turn == 1 and (each is alone or shmem.my_pe() == shmem.n_pes() - 1):
                each.up.bias.grad[-1] = float("inf")
            scaler.step(optimizer)
            scaler.update()
    assert scalers[0].get_scale() == scalers[1].get_scale() == 128
    state, right = nn.gather_state_dict(model), alone.state_dict()
    for name, each in right.items():
        torch.testing.assert_close(state[name], each, rtol=0.02, atol=0.02, msg=name)


def test_layers_that_cannot_be_divided_are_refused_by_name():
    n, name = shmem.n_pes(), "ColumnParallelLinear"
    with refuses("parallelize", "plan: got 'none.*'; wants a pattern that a layer's name matches"):
        nn.parallelize(Block(), {"none.*": nn.rows})
    with refuses("parallelize", "plan: got a layer of RMSNorm; wants one of Linear"):
        nn.parallelize(Block(), {"norms.0": nn.rows})
    with refuses("parallelize", "plan: got a layer of Linear; wants one of Attention, Experts"):
        nn.parallelize(Block(), {"up": nn.divided})
    with refuses("Attention", "heads: got 5, with a width of 12; wants a divisor"):
        nn.Attention(12, 5)
    with refuses(name, "team: got 'none'; wants 'world'"):
        nn.ColumnParallelLinear(4, 4, team="none")
    if n > 1:
        with refuses(name, rf"out_features: got {n + 1}; wants a multiple of {n}, for {n} PEs"):
            nn.ColumnParallelLinear(4, n + 1)
