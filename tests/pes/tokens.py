"""Tokens of all PEs, whose rows go to experts and whose weighted sums come back."""

import pyshmem as shmem
import torch
from operands import close_to, random
from pyshmem import ops
from pyshmem.ops.experts.operators import reference
from pyshmem.ops.float8 import KIND, Scaled
from support import here

BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def eight_bits(seed, count, hidden, shape):
    """Rows of numbers of 8 bits. shape: that of a row's scales."""
    values = random(seed, count, hidden, dtype=torch.float32).to(KIND)
    return Scaled(values, random(seed + 50, count, *shape, dtype=torch.float32).abs())


def bits(rows):
    """What crosses of rows: tensors that can be compared."""
    return (rows.values.view(torch.uint8), rows.scales) if isinstance(rows, Scaled) else (rows,)


def numbers(rows):
    return rows.to(torch.float64) if isinstance(rows, Scaled) else rows.double()


class Case:
    """Tokens on all PEs of a team, a different number on each, and what is wanted of them.

    tokens, choose: functions of a PE; choose changes the random experts that tokens list.
    scales: the shape of a row's scales, which makes rows numbers of 8 bits.
    """

    def __init__(
        self, tokens=lambda pe: 7 + 3 * pe, hidden=40, local=3, top=4, dtype=torch.float32, seed=1, team=None,
        choose=lambda pe, listed: listed, index=torch.int32, scales=None,
    ):  # fmt: skip
        dtype = dtype if scales is None else torch.bfloat16
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
            if scales is None:
                x = random(seed * 1000 + 500 + pe, count, hidden, dtype=dtype)
            else:
                x = eight_bits(seed * 1000 + 500 + pe, count, hidden, scales)
            self.every.append((x, listed, weights))
        self.scaled = scales is not None
        if not self.scaled:
            self.rows, self.counts = reference(self.every, self.experts, self.me)

    def dispatch(self, schedule="auto", capacity=None, **more):
        more = {"team": self.team, "schedule": schedule, "tokens": self.room} | more
        return ops.moe_dispatch(*self.every[self.me], self.experts, capacity, **more)

    def check(self, found, note=""):
        rows, counts, offsets, _ = found
        for place, part in enumerate(bits(rows)):
            every = [(bits(x)[place], *lists) for x, *lists in self.every]
            wanted, self.counts = reference(every, self.experts, self.me)
            assert torch.equal(part[: sum(self.counts)], wanted), f"PE {self.me}: {note}: rows, part {place}"
        assert counts.tolist() == self.counts, f"PE {self.me}: {note}"
        assert offsets.tolist() == torch.tensor([0, *self.counts]).cumsum(0).tolist()

    def applied(self, found):
        """What the experts make of their rows: expert j multiplies by j + 1."""
        rows = found.rows.to(self.dtype) if self.scaled else found.rows
        results = torch.full_like(rows, float("nan"))
        local = len(self.counts)
        for j, (begin, end) in enumerate(zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)):
            results[begin:end] = rows[begin:end] * (self.me * local + j + 1)
        return results

    def check_sums(self, sums, note=""):
        x, listed, weights = self.every[self.me]
        factors = torch.where(listed >= 0, weights.double() * (listed.double() + 1), 0.0).sum(1)
        assert sums.shape == (len(listed), self.hidden) and sums.dtype == self.dtype
        if len(listed):
            close_to(sums, factors[:, None] * numbers(x), BOUNDS[self.dtype], note)

    def round_trip(self, schedule="auto", note="", **more):
        found = self.dispatch(schedule, **more)
        self.check(found, note)
        sums = ops.moe_combine(self.applied(found), found.handle)
        self.check_sums(sums, note)
        return sums
