"""The products of pyshmem.ops for torch's compilers: functions of tensors alone, with the gradients of ops, and a bias.

all_gather_gemm and gemm_reduce_scatter are each other's backward.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from pyshmem.ops.gemm import operators as products
from pyshmem.ops.gemm.gradients import FORMULAS, Options, as_matmul, lined, needs_matmul
from pyshmem.ops.gemm.selection import ABLE
from pyshmem.ops.torch.team_names import WORLD, ByHandle, handle_of, needed_of, operator, team_of

__all__ = [
    "all_gather_gemm", "gemm_all_gather", "gemm_all_reduce", "gemm_reduce_scatter", "scaled_all_gather_gemm",
    "scaled_gemm_all_gather", "scaled_gemm_all_reduce", "scaled_gemm_reduce_scatter",
]  # fmt: skip

_AUTO = {"schedule": "auto", "order": "auto", "size": None, "columns": None, "tile": None, "gradient": "partial"}


def _call(operator: str, a: Tensor, b: Tensor, split: str, team: str, **options: Any) -> Tensor:
    chosen = {name: value for name, value in options.items() if name not in _AUTO or value != _AUTO[name]}
    if "tile" in chosen:
        chosen["tile"] = tuple(chosen["tile"])
    return products.call(operator, lined(a), lined(b), None, team_of(operator, team), None, split, chosen)


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


@operator(differentiable=True)
def all_gather_gemm(
    a: Tensor, b: Tensor, *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    columns: int | None = None, tile: Sequence[int] | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.all_gather_gemm. team: a name."""
    sizes = {"size": size, "columns": columns}
    return _call("all_gather_gemm", a, b, "rows", team, schedule=schedule, order=order, tile=tile, **sizes)


@operator(differentiable=True)
def gemm_reduce_scatter(
    a: Tensor, b: Tensor, *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    tile: Sequence[int] | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_reduce_scatter. team: a name."""
    return _call("gemm_reduce_scatter", a, b, "rows", team, schedule=schedule, order=order, size=size, tile=tile)


@operator(differentiable=True)
def gemm_all_gather(
    a: Tensor, b: Tensor, split: str = "rows", *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    tile: Sequence[int] | None = None, gradient: str = "partial", team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_gather. team: a name."""
    more = {"order": order, "size": size, "tile": tile, "gradient": gradient}
    return _call("gemm_all_gather", a, b, split, team, schedule=schedule, **more)


@operator(differentiable=True)
def gemm_all_reduce(
    a: Tensor, b: Tensor, *, schedule: str = "auto", order: str = "auto", size: int | None = None,
    tile: Sequence[int] | None = None, gradient: str = "partial", team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_reduce. team: a name."""
    more = {"order": order, "size": size, "tile": tile, "gradient": gradient}
    return _call("gemm_all_reduce", a, b, "rows", team, schedule=schedule, **more)


def _linear(multiply: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a product that takes operands as torch's linear layers do: types under autocast, dimensions, and a bias."""
    name = multiply.__name__

    @wraps(multiply)
    def call(
        a: Tensor, b: Tensor, *split: str, bias: Tensor | None = None, team: str = WORLD, **options: Any
    ) -> Tensor:
        def product(a: Tensor, b: Tensor) -> Tensor:
            return multiply(a, b, *split, team=team, **options)

        if needs_matmul(a, b):
            how = options.get("split", *split or ["rows"])
            found = as_matmul(product, name, a, b, _size(name, team), options.get("size"), how)
        else:
            found = product(a, b)
        return found if bias is None else found + bias.to(found.dtype)

    return call


@torch.compiler.assume_constant_result
def _size(routine: str, team: str) -> int:
    return team_of(routine, handle_of(team, routine)).size


all_gather_gemm, gemm_reduce_scatter, gemm_all_gather, gemm_all_reduce = map(
    _linear, (all_gather_gemm, gemm_reduce_scatter, gemm_all_gather, gemm_all_reduce)
)


def _remember(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    a, b, *split = inputs
    ctx.save_for_backward(a, b)
    ctx.needed = needed_of((a, b))
    given = {name: value for name, value in keyword_only_inputs.items() if name in Options._fields}
    ctx.options = Options(**given, **dict(zip(["split"], split, strict=False)))
    ctx.team, ctx.more = keyword_only_inputs["team"], len(split)


def _differentiable(operator: str) -> None:
    """Give an operator its gradients."""

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        perform = ByHandle(ctx.team)
        found = FORMULAS[operator](perform, ctx.saved_tensors, ctx.needed, gradient, ctx.options)
        return *found, *[None] * ctx.more

    register_autograd(f"pyshmem::{operator}", backward, setup_context=_remember)


# -- operators of 8-bit floats, without gradients: they have names of their own, as torch's fused operators have


@operator()
def scaled_all_gather_gemm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, out_dtype: torch.dtype = torch.bfloat16,
    schedule: str = "auto", size: int | None = None, columns: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.all_gather_gemm of 8-bit floats. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("all_gather_gemm", a, b, "rows", team, schedule=schedule, size=size, columns=columns, **scales)


@operator()
def scaled_gemm_reduce_scatter(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, out_dtype: torch.dtype = torch.bfloat16,
    schedule: str = "auto", size: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_reduce_scatter of 8-bit floats. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("gemm_reduce_scatter", a, b, "rows", team, schedule=schedule, size=size, **scales)


@operator()
def scaled_gemm_all_gather(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, split: str = "rows", *,
    out_dtype: torch.dtype = torch.bfloat16, schedule: str = "auto", size: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_gather of 8-bit floats. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("gemm_all_gather", a, b, split, team, schedule=schedule, size=size, **scales)


@operator()
def scaled_gemm_all_reduce(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, out_dtype: torch.dtype = torch.bfloat16,
    schedule: str = "auto", size: int | None = None, team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.gemm_all_reduce of 8-bit floats. team: a name."""
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return _call("gemm_all_reduce", a, b, "rows", team, schedule=schedule, size=size, **scales)


for _operator in ABLE:
    _differentiable(_operator)
    _fake(_operator, scales=0)
    _fake(_operator, scales=2)
