"""moe_dispatch and moe_combine for torch's compilers: functions of tensors alone, which return new ones."""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_fake

from pyshmem.ops.models import experts as routed
from pyshmem.ops.team_names import WORLD, operator, team_of


def _plan(
    name: str, x: Tensor, indices: Tensor, weights: Tensor, experts: int, capacity: int | None, tokens: int | None,
    options: tuple[str, str, str],
) -> Any:  # fmt: skip
    """options: overflow, schedule and the team's handle."""
    overflow, schedule, team = options
    room = len(x) if tokens is None else tokens
    return routed.plan_of((x, indices, weights), experts, capacity, room, overflow, team_of(name, team), schedule)


@operator()
def moe_dispatch(
    x: Tensor, indices: Tensor, weights: Tensor, experts: int, capacity: int | None = None, *, tokens: int | None = None,
    overflow: str = "error", schedule: str = "auto", team: str = WORLD,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """ops.moe_dispatch into new tensors: rows, counts, offsets, and three that moe_combine wants, in place of the handle.

    tokens: the same on all PEs; None: all have as many as x.  team: a name.
    """
    given = x.contiguous(), indices.contiguous(), weights.contiguous()
    plan = _plan(routed.NAME, *given, experts, capacity, tokens, (overflow, schedule, team))
    *results, routing = plan.results()
    plan.dispatch(*given, (*results, routing))
    return (*results, *routing)


@register_fake("pyshmem::moe_dispatch")
def _(x, indices, weights, experts, capacity=None, *, tokens=None, overflow="error", schedule="auto", team):  # type: ignore[no-untyped-def]
    n, top, room = team_of(routed.NAME, team).size, indices.shape[1], x.shape[0] if tokens is None else tokens
    count = room * min(top, experts // n) * n if capacity is None else capacity
    numbers = [
        x.new_empty(shape, dtype=torch.int32) for shape in ((experts // n,), (experts // n + 1,), (n * room, top))
    ]
    factors, hits = x.new_empty((n * room, top), dtype=torch.float32), x.new_empty((room, n), dtype=torch.int32)
    return x.new_empty((count, x.shape[1])), *numbers, factors, hits


@operator()
def moe_combine(
    rows: Tensor, given: list[Tensor], routing: list[Tensor], experts: int, capacity: int | None = None, *,
    tokens: int | None = None, overflow: str = "error", schedule: str = "auto", team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.moe_combine into a new tensor. given: x, indices and weights of moe_dispatch.  routing: the last three results.

    Others: those of moe_dispatch.
    """
    x, indices, weights = (each.contiguous() for each in given)
    plan = _plan(routed.BACK, x, indices, weights, experts, capacity, tokens, (overflow, schedule, team))
    handle = routed.Handle(plan, len(x), routed.Routing(*routing))
    return plan.combine(rows.contiguous(), handle, torch.empty_like(x))  # type: ignore[no-any-return]


@register_fake("pyshmem::moe_combine")
def _(rows, given, routing, experts, capacity=None, *, tokens=None, overflow="error", schedule="auto", team):  # type: ignore[no-untyped-def]
    return given[0].new_empty(given[0].shape)
