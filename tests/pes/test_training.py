"""All of training at once: a divided GPT block and one process have the same weights after 20 steps, in float64."""

import io
from functools import partial

import pyshmem as shmem
import pytest
import torch
from divided_models import BATCH, PLAN, Block, alike, pair, plainly, words
from pyshmem import nn, ops
from pyshmem.ops import torch as tp
from support import here
from torch.utils.checkpoint import checkpoint
from torch_graphs import compiled

pytestmark = pytest.mark.usefixtures("fresh", "reserve")

STEPS, SAVED, INFINITE = 20, 10, 6  # the steps of all; those before the state is saved; the step that finds an infinity
RUNS = {
    "plain": plainly,
    "reentrant checkpoint": partial(checkpoint, use_reentrant=True),
    "compiled": plainly,
    "checkpoint": partial(checkpoint, use_reentrant=False),
}


class Grid:
    """Replicas of a model, of PEs that divide its layers: two replicas of two PEs, or one. ``tensor`` names this PE's."""

    def __init__(self, team, name):
        tensor, self.data = team.split_2d(2 if team.n_pes() == 4 else team.n_pes())
        self.tensor = tp.name_team(name, tensor)
        self.place, self.n = tensor.my_pe(), tensor.n_pes()

    def share(self, whole):
        """The tokens of the sequences that this PE has of (tokens, batch)."""
        replica = whole.chunk(self.data.n_pes(), 1)[self.data.my_pe()]
        return replica.chunk(self.n)[self.place]


class Trained:
    """A model with its optimizer and scaler. grid: None for one process."""

    def __init__(self, model, grid=None, compiles=True):
        self.model, self.grid, kind = model, grid, here().type
        groups = [
            {"params": [each for each in model.parameters() if each.requires_grad and (each.dim() > 1) is decays],
             "weight_decay": 0.1 * decays}
            for decays in (True, False)
        ]  # fmt: skip
        self.optimizer = torch.optim.AdamW(groups, lr=0.01)
        make = torch.amp.GradScaler if grid is None else partial(nn.GradScaler, team=grid.tensor)
        self.scaler = make(kind, init_scale=256.0, growth_interval=3)
        self.reducer = None if grid is None else ops.GradientReducer(model, grid.data, average=False)
        self.compiled = compiled(model, "aot_eager", []) if compiles else model

    def micro(self, turn, half, spoils):
        """Add the gradients of a micro-batch. spoils: its loss is infinite."""
        run = list(RUNS)[(turn + half) % len(RUNS)]
        self.model.run, call, given = RUNS[run], self.model, words(2 * turn + half)
        if self.grid is not None:
            given = self.grid.share(given)
            if run == "compiled":
                call = self.compiled
        with torch.autocast(here().type, dtype=torch.bfloat16):  # which leaves float64 as it is
            loss = call(given).logsumexp(-1).square().sum() / BATCH
        self.scaler.scale(loss * float("inf") if spoils else loss).backward()

    def step(self, turn, spoils=False):
        """Two micro-batches, and a step with clipped gradients. Returns their norm."""
        self.optimizer.zero_grad()
        if self.reducer is None:
            self.micro(turn, 0, spoils=False)
        else:
            with self.reducer.no_sync():
                self.micro(turn, 0, spoils=False)
        self.micro(turn, 1, spoils)
        self.scaler.unscale_(self.optimizer)
        if self.grid is None:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        else:
            norm = nn.clip_grad_norm_(self.model, 1.0, self.grid.tensor)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return norm

    def saved(self):
        """What a file has of it, with whole parameters."""
        states = nn.gather_state_dict(self.model), nn.gather_optimizer_state_dict(self.model, self.optimizer)
        file = io.BytesIO()
        torch.save((*states, self.scaler.state_dict()), file)
        self.reducer.close()
        return file.getvalue()

    def load(self, file):
        state, kept, scaler = torch.load(io.BytesIO(file))
        nn.scatter_state_dict(self.model, state)
        nn.scatter_optimizer_state_dict(self.model, self.optimizer, kept)
        self.scaler.load_state_dict(scaler)


def train(alone, divided, turns):
    last = shmem.n_pes() - 1
    for turn in turns:
        infinite = turn == INFINITE
        norms = alone.step(turn, infinite), divided.step(turn, infinite and shmem.my_pe() == last)
        if not infinite:
            torch.testing.assert_close(*norms)
        assert alone.scaler.get_scale() == divided.scaler.get_scale()
    assert divided.model.unused.weight.grad is None


def test_a_model_trains_as_in_one_process_whatever_is_done_with_it_and_goes_on_with_other_pes():
    """Tensor, sequence, context, expert and data parallelism; two micro-batches of a step, clipped, scaled and autocast.

    By turns they are plain, compiled in one graph, and checkpointed in both ways. Some parameters are frozen, some unused. A
    step finds an infinity on one PE. After ten steps the state is saved, and the rest is done by one PE less.
    """
    grid = Grid(shmem.TEAM_WORLD, "first tensor")
    alone, model = pair(grid.tensor)
    alone, divided = Trained(alone), Trained(model, grid)
    train(alone, divided, range(SAVED))
    file = divided.saved()
    alike(torch.load(io.BytesIO(file))[0], alone.model.state_dict())
    team = shmem.TEAM_WORLD.split_strided(0, 1, max(shmem.n_pes() - 1, 1))
    if not team:
        return
    grid = Grid(team, "second tensor")
    divided = Trained(nn.parallelize(Block().double().to(here()), PLAN, grid.tensor), grid, compiles=False)
    divided.load(file)
    train(alone, divided, range(SAVED, STEPS))
    alike(nn.gather_state_dict(divided.model), alone.model.state_dict())
    divided.reducer.close()
