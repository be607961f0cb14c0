"""The operators for torch.compile and autograd: ``from pyshmem.ops import torch_library`` registers torch.ops.pyshmem.*.

They are functions without side effects, as compilers want them: each call returns a new tensor, which lives as long as its
user wants, not one of the plan's two arrays. For gemm_all_gather and gemm_all_reduce this costs a copy of the result; where
that matters, call ops.gemm_all_gather with out= instead, outside of compiled code. A team goes by the name that name_team
gave it; epilogues are for the functions of ops only.

CUDA graphs: the first call of a kind makes a plan, which allocates, and so does the first call of a collective that stages
its operands. Make one call of each kind, forward and backward, before you capture. torch.compile(mode="reduce-overhead")
does so by itself. All PEs must make the same calls in the same order: compile the same function for the same shapes, and
let the same operands require gradients, on all PEs.

Gradients are those of the sum of all PEs' losses. all_gather_gemm and gemm_reduce_scatter are each other's backward.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from pyshmem.ops.attention import decode as decoding
from pyshmem.ops.attention import prefill as attending
from pyshmem.ops.gemm import plan as plans
from pyshmem.ops.gemm import scaling
from pyshmem.ops.gemm.problem import is_lined
from pyshmem.ops.torch import collectives as torch_collectives
from pyshmem.ops.torch.collectives import (
    alltoall_on_stream,
    alltoallv_on_stream,
    barrier_on_stream,
    broadcast_on_stream,
    fcollect_on_stream,
    gather_rows,
    reduce_on_stream,
    reduce_scatter_on_stream,
    sum_exscan_on_stream,
    sum_inscan_on_stream,
)
from pyshmem.ops.torch.experts import moe_combine, moe_dispatch, scaled_moe_dispatch
from pyshmem.ops.torch.norms import (
    all_reduce_rms_norm,
    reduce_scatter_rms_norm,
    reduce_scatter_rms_norm_all_gather,
    scaled_all_reduce_rms_norm,
    scaled_reduce_scatter_rms_norm,
    scaled_reduce_scatter_rms_norm_all_gather,
)
from pyshmem.ops.torch.team_names import WORLD, name_team, operator, team_of

__all__ = [
    "all_gather_gemm",
    "all_reduce_rms_norm",
    "alltoall_on_stream",
    "alltoallv_on_stream",
    "attention",
    "barrier_on_stream",
    "broadcast_on_stream",
    "clear",
    "fcollect_on_stream",
    "flash_decode",
    "gather_rows",
    "gemm_all_gather",
    "gemm_all_reduce",
    "gemm_reduce_scatter",
    "moe_combine",
    "moe_dispatch",
    "name_team",
    "reduce_on_stream",
    "reduce_scatter_on_stream",
    "reduce_scatter_rms_norm",
    "reduce_scatter_rms_norm_all_gather",
    "scaled_all_gather_gemm",
    "scaled_all_reduce_rms_norm",
    "scaled_gemm_all_gather",
    "scaled_gemm_all_reduce",
    "scaled_gemm_reduce_scatter",
    "scaled_moe_dispatch",
    "scaled_reduce_scatter_rms_norm",
    "scaled_reduce_scatter_rms_norm_all_gather",
    "sum_exscan_on_stream",
    "sum_inscan_on_stream",
]
_AUTO = {"schedule": "auto", "order": "auto", "size": None, "columns": None, "tile": None}


def clear() -> None:
    """Close all plans and free all staging memory. Collective over all PEs, which have made the same calls."""
    plans.clear()
    torch_collectives.clear()


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


# -- operators of models, without gradients


@operator()
def flash_decode(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None, scale: float | None = None,
    block_table: Tensor | None = None, *, schedule: str = "auto", team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.flash_decode into a new tensor. team: a name."""
    group = team_of("flash_decode", team)
    return decoding.flash_decode(q, k, v, lengths, scale, torch.empty_like(q), group, schedule, block_table)


@register_fake("pyshmem::flash_decode")
def _(q, k, v, lengths=None, scale=None, block_table=None, *, schedule="auto", team):  # type: ignore[no-untyped-def]
    return torch.empty_like(q)


@operator()
def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None, *, size: int | None = None,
    order: str = "contiguous", schedule: str = "auto", team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.attention into a new tensor. team: a name."""
    group = team_of("attention", team)
    options = {"size": size, "order": order, "schedule": schedule}
    return attending.attention(q, k, v, causal, scale, torch.empty_like(q), group, **options)


@register_fake("pyshmem::attention")
def _(q, k, v, causal=False, scale=None, *, size=None, order="contiguous", schedule="auto", team):  # type: ignore[no-untyped-def]
    return torch.empty_like(q)
