"""moe_dispatch and moe_combine for torch's compilers: functions of tensors alone, which return new ones."""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_fake

from pyshmem.ops.experts import operators as routed
from pyshmem.ops.float8 import KIND, Scaled
from pyshmem.ops.torch.team_names import WORLD, operator, team_of


def _plan(
    name: str, given: tuple[Any, Tensor, Tensor], experts: int, capacity: int | None, tokens: int | None,
    options: tuple[str, str, str],
) -> Any:  # fmt: skip
    """given: x, indices and weights.  options: overflow, schedule and the team's handle."""
    overflow, schedule, team = options
    room = len(given[1]) if tokens is None else tokens
    return routed.plan_of(given, experts, capacity, room, overflow, team_of(name, team), schedule)


def _sizes(
    indices: Tensor, experts: int, capacity: int | None, tokens: int | None, team: str
) -> tuple[int, list[Tensor]]:
    """Return the rows of a result, and tensors like those of counts, offsets and the routing."""
    n, top, room = team_of(routed.NAME, team).size, indices.shape[1], indices.shape[0] if tokens is None else tokens
    count = room * min(top, experts // n) * n if capacity is None else capacity
    shapes = (experts // n,), (experts // n + 1,), (n * room, top)
    numbers = [indices.new_empty(shape, dtype=torch.int32) for shape in shapes]
    factors = indices.new_empty((n * room, top), dtype=torch.float32)
    return count, [*numbers, factors, indices.new_empty((room, n), dtype=torch.int32)]


@operator()
def moe_dispatch(
    x: Tensor, indices: Tensor, weights: Tensor, experts: int, capacity: int | None = None, *, tokens: int | None = None,
    overflow: str = "error", schedule: str = "auto", team: str = WORLD,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """ops.moe_dispatch into new tensors: rows, counts, offsets, and three that moe_combine wants, in place of the handle.

    tokens: the same on all PEs; None: all have as many as x.  team: a name.
    """
    given = x.contiguous(), indices.contiguous(), weights.contiguous()
    plan = _plan(routed.NAME, given, experts, capacity, tokens, (overflow, schedule, team))
    *results, handle = plan.dispatch(*given)
    return (*results, *handle.routing)


@register_fake("pyshmem::moe_dispatch")
def _(x, indices, weights, experts, capacity=None, *, tokens=None, overflow="error", schedule="auto", team):  # type: ignore[no-untyped-def]
    count, others = _sizes(indices, experts, capacity, tokens, team)
    return x.new_empty((count, x.shape[1])), *others


@operator()
def scaled_moe_dispatch(
    x: list[Tensor], indices: Tensor, weights: Tensor, experts: int, capacity: int | None = None, *,
    tokens: int | None = None, overflow: str = "error", schedule: str = "auto", team: str = WORLD,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """moe_dispatch of ops.Scaled(*x): rows and their scales, and the same five tensors behind them."""
    given = Scaled(*(each.contiguous() for each in x)), indices.contiguous(), weights.contiguous()
    plan = _plan(routed.NAME, given, experts, capacity, tokens, (overflow, schedule, team))
    rows, *numbers, handle = plan.dispatch(*given)
    return (*rows, *numbers, *handle.routing)


@register_fake("pyshmem::scaled_moe_dispatch")
def _(x, indices, weights, experts, capacity=None, *, tokens=None, overflow="error", schedule="auto", team):  # type: ignore[no-untyped-def]
    count, others = _sizes(indices, experts, capacity, tokens, team)
    values, scales = x
    return values.new_empty((count, values.shape[1]), dtype=KIND), scales.new_empty((count, *scales.shape[1:])), *others


@operator()
def moe_combine(
    rows: Tensor, given: list[Tensor], routing: list[Tensor], experts: int, capacity: int | None = None, *,
    tokens: int | None = None, overflow: str = "error", schedule: str = "auto", team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.moe_combine into a new tensor. routing: the last three results of the dispatch.

    given: x, scales if it has some, indices and weights of the dispatch.  Others: those of the dispatch.
    """
    *x, indices, weights = (each.contiguous() for each in given)
    operands = Scaled(*x) if len(x) == 2 else x[0], indices, weights
    plan = _plan(routed.BACK, operands, experts, capacity, tokens, (overflow, schedule, team))
    handle = routed.Handle(plan, len(indices), routed.Routing(*routing))
    return plan.combine(rows.contiguous(), handle, None)  # type: ignore[no-any-return]


@register_fake("pyshmem::moe_combine")
def _(rows, given, routing, experts, capacity=None, *, tokens=None, overflow="error", schedule="auto", team):  # type: ignore[no-untyped-def]
    return rows.new_empty(given[0].shape)
