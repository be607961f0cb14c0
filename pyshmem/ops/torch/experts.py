"""moe_dispatch and moe_combine for torch's compilers: functions of tensors alone, with the gradients of ops."""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops.experts import gradients
from pyshmem.ops.experts import operators as routed
from pyshmem.ops.experts.schedules import Routing
from pyshmem.ops.float8 import KIND, Scaled
from pyshmem.ops.torch.team_names import WORLD, ByHandle, operator, team_of

__all__ = ["moe_combine", "moe_dispatch", "scaled_moe_dispatch"]


def _plan(
    name: str, given: tuple[Any, Tensor, Tensor], experts: int, capacity: int | None, tokens: int | None,
    options: tuple[str, str, str],
) -> Any:  # fmt: skip
    """given: x, indices and weights.  options: overflow, schedule and the team's handle."""
    overflow, schedule, team = options
    room = len(given[1]) if tokens is None else tokens
    return routed.plan_of(given, experts, capacity, room, overflow, team_of(name, team), schedule)


def _sizes(
    indices: Tensor, wide: torch.dtype, experts: int, capacity: int | None, tokens: int | None, team: str
) -> tuple[int, list[Tensor]]:
    """Return the rows of a result, and tensors like those of counts, offsets and the routing."""
    n, top, room = team_of(routed.NAME, team).size, indices.shape[1], indices.shape[0] if tokens is None else tokens
    count = room * min(top, experts // n) * n if capacity is None else capacity
    shapes = (experts // n,), (experts // n + 1,), (n * room, top)
    numbers = [indices.new_empty(shape, dtype=torch.int32) for shape in shapes]
    factors = indices.new_empty((n * room, top), dtype=wide)
    return count, [*numbers, factors, indices.new_empty((room, n), dtype=torch.int32)]


@operator(differentiable=True)
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
    count, others = _sizes(indices, weights.dtype, experts, capacity, tokens, team)
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
    count, others = _sizes(indices, weights.dtype, experts, capacity, tokens, team)
    values, scales = x
    return values.new_empty((count, values.shape[1]), dtype=KIND), scales.new_empty((count, *scales.shape[1:])), *others


@operator(differentiable=True)
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
    handle = routed.Handle(plan, len(indices), Routing(*routing), indices, weights)
    return plan.combine(rows.contiguous(), handle, None)  # type: ignore[no-any-return]


@register_fake("pyshmem::moe_combine")
def _(rows, given, routing, experts, capacity=None, *, tokens=None, overflow="error", schedule="auto", team):  # type: ignore[no-untyped-def]
    return rows.new_empty(given[0].shape)


class _Again:
    """The operators on other rows, with the arguments of a call that is differentiated."""

    def __init__(self, experts: int, capacity: int | None, options: dict[str, Any]) -> None:
        self.experts, self.capacity = experts, capacity
        self.options, self.perform = options, ByHandle(options["team"])

    def move(self, x: Tensor, indices: Tensor, weights: Tensor) -> gradients.Move:
        given = self.experts, self.capacity

        def dispatch(x: Tensor) -> Tensor:
            return torch.ops.pyshmem.moe_dispatch(x, indices, weights, *given, **self.options)[0]  # type: ignore[no-any-return]

        def combine(rows: Tensor, routing: Any) -> Tensor:
            lists = [x, indices, weights], list(routing)
            return torch.ops.pyshmem.moe_combine(rows, *lists, *given, **self.options)  # type: ignore[no-any-return]

        return gradients.Move(dispatch, combine, self.perform)


def _keep_dispatch(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    x, indices, weights, *others = inputs
    ctx.save_for_backward(x, indices, weights, *output[3:])
    ctx.again, ctx.needed = _Again(*others, keyword_only_inputs), x.requires_grad
    ctx.mark_non_differentiable(*output[1:])


def _of_dispatch(ctx: Any, gradient: Tensor, *others: Any) -> tuple[Any, ...]:
    x, indices, weights, *routing = ctx.saved_tensors
    move = ctx.again.move(x, indices, weights)
    to_x = gradients.of_dispatch(move, Routing(*routing), gradient) if ctx.needed else None
    return to_x, None, None, None, None


def _keep_combine(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    rows, given, routing, *others = inputs
    ctx.save_for_backward(rows, *given, *routing)
    ctx.count, ctx.scaled = len(given), len(given) > 3
    ctx.weighted = given[-1].requires_grad
    ctx.again = _Again(*others, keyword_only_inputs)


def _of_combine(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    rows, *saved = ctx.saved_tensors
    given, routing = saved[: ctx.count], saved[ctx.count :]
    if ctx.scaled:
        refuse(ArgumentError, routed.BACK, "rows", "a tensor that requires a gradient", "rows of a dispatch of plain x")
    move = ctx.again.move(*given)
    to_rows, to_weights = gradients.of_combine(
        move, Routing(*routing), rows, given[1], ctx.again.experts, gradient, ctx.weighted
    )
    # as many as the call had arguments: with lists among them, torch counts
    return to_rows, [None, None, to_weights], [None] * len(routing), *[None] * (len(ctx.needs_input_grad) - 3)


register_autograd("pyshmem::moe_dispatch", _of_dispatch, setup_context=_keep_dispatch)
register_autograd("pyshmem::moe_combine", _of_combine, setup_context=_keep_combine)
