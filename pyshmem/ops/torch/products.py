"""The products of pyshmem.ops for torch's compilers: functions of tensors alone, two of them with gradients.

Gradients are those of the sum of all PEs' losses. all_gather_gemm and gemm_reduce_scatter are each other's backward.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from pyshmem.ops.gemm import plan as plans
from pyshmem.ops.gemm import scaling
from pyshmem.ops.gemm.problem import is_lined
from pyshmem.ops.torch.team_names import WORLD, operator, team_of

_AUTO = {"schedule": "auto", "order": "auto", "size": None, "columns": None, "tile": None}


def _call(operator: str, a: Tensor, b: Tensor, split: str, team: str, **options: Any) -> Tensor:
    group = team_of(operator, team)
    scales = scaling.taken(options)
    chosen = {name: value for name, value in options.items() if value != _AUTO.get(name)}
    if "tile" in chosen:
        chosen["tile"] = tuple(chosen["tile"])
    # gradients are often expanded scalars
    a, b = (matrix if is_lined(matrix) else matrix.contiguous() for matrix in (a, b))
    plan = plans.find(operator, a, b, group, split, chosen, scales)
    if plan.problem.symmetric:  # the plan has the result, and the caller a copy
        return plan(a, b, None, *scales).clone()
    return plan(a, b, a.new_empty(plan.problem.result, dtype=plan.problem.dtype), *scales)


def _fake(operator: str, scales: int) -> None:
    """Tell torch the shape and the type of what an operator returns. scales: how many arguments follow a and b."""

    def empty(a: Tensor, b: Tensor, *more: Any, team: str, size: int | None = None, **rest: Any) -> Tensor:
        group, rows, columns = team_of(operator, team), a.shape[0], b.shape[1]
        if operator == "gemm_reduce_scatter":
            rows = (rows + group.size - 1 - group.me) // group.size
        elif rest.get("split", *more[scales:] or ["rows"]) == "columns":
            columns = columns * group.size if size is None else size
        elif operator != "gemm_all_reduce":
            rows = rows * group.size if size is None else size
        return a.new_empty((rows, columns), dtype=rest.get("out_dtype", torch.bfloat16) if scales else a.dtype)

    register_fake(f"pyshmem::{'scaled_' if scales else ''}{operator}", empty)


# -- operators with gradients


@operator()
def all_gather_gemm(
    a: Tensor, b: Tensor, *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    columns: int | None = None, tile: Sequence[int] | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.all_gather_gemm into a new tensor. team: a name."""
    sizes = {"size": size, "columns": columns}
    return _call("all_gather_gemm", a, b, "rows", team, schedule=schedule, order=order, tile=tile, **sizes)


@operator()
def gemm_reduce_scatter(
    a: Tensor, b: Tensor, *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    tile: Sequence[int] | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_reduce_scatter into a new tensor. team: a name."""
    return _call("gemm_reduce_scatter", a, b, "rows", team, schedule=schedule, order=order, size=size, tile=tile)


def _remember(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
    ctx.team, ctx.size = keyword_only_inputs["team"], keyword_only_inputs["size"]
    ctx.columns = keyword_only_inputs.get("columns")


def _backward_of_all_gather_gemm(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    to_a = to_b = None
    if ctx.needs_input_grad[0]:
        to_a = torch.ops.pyshmem.gemm_reduce_scatter(gradient, b.T, size=ctx.columns, team=ctx.team)
    if ctx.needs_input_grad[1]:
        to_b = torch.ops.pyshmem.gather_rows(a, ctx.size, team=ctx.team).T @ gradient
    return to_a, to_b


def _backward_of_gemm_reduce_scatter(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """If both operands want a gradient, all rows are needed twice, and gathered once."""
    a, b = ctx.saved_tensors
    if not ctx.needs_input_grad[1]:
        to_a = torch.ops.pyshmem.all_gather_gemm(gradient, b.T, size=a.shape[0], columns=ctx.size, team=ctx.team)
        return to_a, None
    rows = torch.ops.pyshmem.gather_rows(gradient, a.shape[0], team=ctx.team)
    return rows @ b.T if ctx.needs_input_grad[0] else None, a.T @ rows


register_autograd("pyshmem::all_gather_gemm", _backward_of_all_gather_gemm, setup_context=_remember)
register_autograd("pyshmem::gemm_reduce_scatter", _backward_of_gemm_reduce_scatter, setup_context=_remember)


# -- operators without gradients: all PEs have the result, and torch cannot know whether all of them add to the loss


@operator()
def gemm_all_gather(
    a: Tensor, b: Tensor, split: str = "rows", *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    tile: Sequence[int] | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_gather into a new tensor. team: a name."""
    return _call("gemm_all_gather", a, b, split, team, schedule=schedule, order=order, size=size, tile=tile)


@operator()
def gemm_all_reduce(
    a: Tensor, b: Tensor, *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    tile: Sequence[int] | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_reduce into a new tensor. team: a name."""
    return _call("gemm_all_reduce", a, b, "rows", team, schedule=schedule, order=order, size=size, tile=tile)


# -- operators of 8-bit floats, without gradients: they have names of their own, as torch's fused operators have


@operator()
def scaled_all_gather_gemm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, out_dtype: torch.dtype = torch.bfloat16,
    schedule: str = "auto", size: int | None = None, columns: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.all_gather_gemm of 8-bit floats into a new tensor. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("all_gather_gemm", a, b, "rows", team, schedule=schedule, size=size, columns=columns, **scales)


@operator()
def scaled_gemm_reduce_scatter(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, out_dtype: torch.dtype = torch.bfloat16,
    schedule: str = "auto", size: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_reduce_scatter of 8-bit floats into a new tensor. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("gemm_reduce_scatter", a, b, "rows", team, schedule=schedule, size=size, **scales)


@operator()
def scaled_gemm_all_gather(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, split: str = "rows", *,
    out_dtype: torch.dtype = torch.bfloat16, schedule: str = "auto", size: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_gather of 8-bit floats into a new tensor. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("gemm_all_gather", a, b, split, team, schedule=schedule, size=size, **scales)


@operator()
def scaled_gemm_all_reduce(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, out_dtype: torch.dtype = torch.bfloat16,
    schedule: str = "auto", size: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_reduce of 8-bit floats into a new tensor. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("gemm_all_reduce", a, b, "rows", team, schedule=schedule, size=size, **scales)


for _operator in plans.ABLE:
    _fake(_operator, scales=0)
    _fake(_operator, scales=2)
