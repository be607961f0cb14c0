"""Models whose gradients GradientReducer reduces, and what their gradients should be."""

import contextlib
import copy

import pyshmem as shmem
import pytest
import torch
from operands import close_to, random
from pyshmem import ops
from pyshmem.ops.training.schedules import SCHEDULES
from support import here

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def network(dtype=torch.float32, seed=None):
    """Three layers, with other weights on each PE unless there is a seed."""
    torch.manual_seed(shmem.my_pe() if seed is None else seed)
    layers = torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5)
    return torch.nn.Sequential(*layers).to(here(), dtype)


def data(pe, turn=0, dtype=torch.float32):
    return random(1000 * turn + pe, 7, 6, dtype=dtype)


def loss_of(model, x):
    return model(x).square().sum()


def averages(model, turns=(0,), team=shmem.TEAM_WORLD, average=True):
    """What gradients should be, in float64: of the data of all PEs, added over turns, by a copy of the model."""
    alone = copy.deepcopy(model).double()
    alone.zero_grad()
    dtype = next(model.parameters()).dtype
    for pe in range(team.n_pes()):
        for turn in turns:
            loss_of(alone, data(team.translate_pe(pe), turn, dtype).double()).backward()
    return [each.grad / (team.n_pes() if average else 1) for each in alone.parameters()]


def check(model, wanted, note=""):
    for (name, each), right in zip(model.named_parameters(), wanted, strict=True):
        close_to(each.grad, right, BOUNDS[each.dtype], f"{name} {note}")


@contextlib.contextmanager
def reducing(model, **options):
    reducer = ops.GradientReducer(model, **options)
    yield reducer
    reducer.close()


def noted(step, order, name):
    """A reducer's step that adds ``name`` to ``order``."""

    def wrapped(source):
        order.append(name)
        step(source)

    return wrapped
