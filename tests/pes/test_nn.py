"""pyshmem.nn: divided models against the same model in one process, in float64, and their states."""

import copy

import pyshmem as shmem
import pytest
import torch
from divided_models import TOKENS, WIDTH, Block, mine, pair, same, words
from pyshmem import nn
from support import here, refuses

pytestmark = pytest.mark.usefixtures("fresh")


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
    with refuses("scatter_state_dict", r"state, up.weight: got \(5, 12\); expected \(24, 12\)"):
        nn.scatter_state_dict(model, wrong)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.5)
    optimizer.state[model.up.weight]["momentum_buffer"] = torch.zeros(7)
    with refuses("gather_optimizer_state_dict", r"momentum_buffer of up.weight: got \(7,\); expected"):
        nn.gather_optimizer_state_dict(model, optimizer)
    del wrong["up.weight"]
    with pytest.raises(RuntimeError, match="Missing key.*up.weight"):
        nn.scatter_state_dict(model, wrong)


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
    with refuses("parallelize", "plan: got 'none.*'; expected a pattern that a layer's name matches"):
        nn.parallelize(Block(), {"none.*": nn.rows})
    with refuses("parallelize", "plan: got a layer of RMSNorm; expected one of Linear"):
        nn.parallelize(Block(), {"norms.0": nn.rows})
    with refuses("parallelize", "plan: got a layer of Linear; expected one of Attention, Experts"):
        nn.parallelize(Block(), {"up": nn.divided})
    with refuses("ContextParallelAttention", "order: got 'odd'; expected 'contiguous' or 'zigzag'"):
        nn.parallelize(Block(), {"context": nn.context("odd")})
    with refuses(
        "ContextParallelAttention", "module: got ContextParallelAttention; expected an Attention without a team"
    ):
        nn.ContextParallelAttention.of(nn.ContextParallelAttention(12, 3))
    with refuses("Attention", "heads: got 5, with a width of 12; expected a divisor"):
        nn.Attention(12, 5)
    with refuses(name, "team: got 'none'; expected 'world'"):
        nn.ColumnParallelLinear(4, 4, team="none")
    if n > 1:
        with refuses(name, rf"out_features: got {n + 1}; expected a multiple of {n}, for {n} PEs"):
            nn.ColumnParallelLinear(4, n + 1)


class _Scaled(torch.optim.Optimizer):
    """Steps of the length of the gradient's: an optimizer of another library, which looks at all elements."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for each in self.param_groups[0]["params"]:
            each.sub_(each.grad, alpha=self.param_groups[0]["lr"] / float(each.grad.norm() + 1))


def test_optimizers_that_look_at_whole_parameters_are_refused_for_divided_ones(npes):
    """Whatever their names, in any step, also in copies of a model; a learning rate of 0 hides nothing."""
    _, model = pair()
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    matrices = [each for each in model.parameters() if each.dim() == 2]
    for make in (torch.optim.Adam, torch.optim.SGD, torch.optim.NAdam, torch.optim.RMSprop):
        make(model.parameters(), lr=1e-3).step()
    before = [each.detach().clone() for each in matrices]
    for make in (torch.optim.Muon, torch.optim.Adafactor, _Scaled):
        found = make(matrices, lr=0.0)
        if npes == 1:
            found.step()
            continue
        for routine, call in ("step", found.step), ("gather_optimizer_state_dict", None):
            with refuses(routine, rf"optimizer: got {make.__name__}, which updates the shares of \w+.weight otherwise"):
                call() if call else nn.gather_optimizer_state_dict(model, found)
    assert all(map(torch.equal, matrices, before))
    if npes > 1:
        copied = copy.deepcopy(model)
        for each in copied.parameters():
            each.grad = torch.ones_like(each)
        with refuses("step", "optimizer: got Muon"):
            torch.optim.Muon([each for each in copied.parameters() if each.dim() == 2], lr=0.1).step()
    alone = torch.nn.Linear(4, 4, bias=False)
    alone(torch.ones(1, 4)).sum().backward()
    torch.optim.Muon(alone.parameters(), lr=0.1).step()  # of whole parameters
