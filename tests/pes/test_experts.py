"""moe_dispatch and moe_combine: rows, counts and weighted sums against float64, for uneven tokens known only when kernels run."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, random
from pyshmem import ops
from pyshmem.ops import workspace
from pyshmem.ops.models import plans as plans_of_models
from pyshmem.ops.models.expert_schedules import SCHEDULES
from pyshmem.ops.models.experts import reference
from support import here, interpreted, work

pytestmark = pytest.mark.usefixtures("plans_closed")

BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
GPU = torch.cuda.is_available()
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


class Case:
    """Tokens on all PEs of a team, a different number on each, and what is wanted of them.

    tokens, choose: functions of a PE; choose changes the random experts that tokens list.
    """

    def __init__(
        self, tokens=lambda pe: 7 + 3 * pe, hidden=40, local=3, top=4, dtype=torch.float32, seed=1, team=None,
        choose=lambda pe, listed: listed, index=torch.int32,
    ):  # fmt: skip
        self.team, self.dtype, self.hidden = shmem.TEAM_WORLD if team is None else team, dtype, hidden
        self.n, self.me = self.team.n_pes(), self.team.my_pe()
        self.experts, self.every = local * self.n, []
        self.room = max(tokens(pe) for pe in range(self.n))
        top = min(top, self.experts)
        for pe in range(self.n):
            generator = torch.Generator().manual_seed(seed * 1000 + pe)
            count = tokens(pe)
            listed = torch.rand(count, self.experts, generator=generator).argsort(1)[:, :top].to(torch.int32)
            listed = choose(pe, listed).contiguous().to(index).to(here())
            weights = torch.rand(listed.shape, generator=generator).to(here())
            self.every.append((random(seed * 1000 + 500 + pe, count, hidden, dtype=dtype), listed, weights))
        self.rows, self.counts = reference(self.every, self.experts, self.me)

    def dispatch(self, schedule="auto", capacity=None, **more):
        more = {"team": self.team, "schedule": schedule, "tokens": self.room} | more
        return ops.moe_dispatch(*self.every[self.me], self.experts, capacity, **more)

    def check(self, found, note=""):
        rows, counts, offsets, _ = found
        assert counts.tolist() == self.counts, f"PE {self.me}: {note}"
        assert offsets.tolist() == torch.tensor([0, *self.counts]).cumsum(0).tolist()
        assert torch.equal(rows[: sum(self.counts)], self.rows), f"PE {self.me}: {note}: rows"

    def applied(self, found):
        """What the experts make of their rows: expert j multiplies by j + 1."""
        rows, results = found.rows, torch.full_like(found.rows, float("nan"))
        local = len(self.counts)
        for j, (begin, end) in enumerate(zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)):
            results[begin:end] = rows[begin:end] * (self.me * local + j + 1)
        return results

    def check_sums(self, sums, note=""):
        x, listed, weights = self.every[self.me]
        factors = torch.where(listed >= 0, weights.double() * (listed.double() + 1), 0.0).sum(1)
        assert sums.shape == x.shape and sums.dtype == self.dtype
        if len(x):
            close_to(sums, factors[:, None] * x.double(), BOUNDS[self.dtype], note)

    def round_trip(self, schedule="auto", note="", **more):
        found = self.dispatch(schedule, **more)
        self.check(found, note)
        sums = ops.moe_combine(self.applied(found), found.handle)
        self.check_sums(sums, note)
        return sums


@every_schedule
def test_every_schedule_brings_rows_to_experts_and_weighted_sums_back(schedule):
    for dtype in BOUNDS:
        Case(dtype=dtype).round_trip(schedule, dtype)
