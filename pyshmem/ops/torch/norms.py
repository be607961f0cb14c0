"""The operators that end in RMSNorm for torch's compilers: functions of tensors alone, with the gradients of ops.

A scaled form has its rows in 8 bits: it returns ops.Scaled's values and scales in place of the rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from pyshmem.ops.autocast import widened
from pyshmem.ops.float8 import KIND, Scaled
from pyshmem.ops.norms import all_reduce_rms_norm as whole
from pyshmem.ops.norms import reduce_scatter_rms_norm as shared
from pyshmem.ops.norms.gradients import Options, Way, gradients_of, require_meaning
from pyshmem.ops.torch.team_names import WORLD, ByHandle, needed_of, operator, team_of

__all__ = [
    "all_reduce_rms_norm", "reduce_scatter_rms_norm", "reduce_scatter_rms_norm_all_gather",
    "scaled_all_reduce_rms_norm", "scaled_reduce_scatter_rms_norm", "scaled_reduce_scatter_rms_norm_all_gather",
]  # fmt: skip


def _numbers(rows: Tensor) -> Scaled:
    """Return room for rows of 8 bits."""
    return Scaled(torch.empty_like(rows, dtype=KIND), rows.new_empty(len(rows), dtype=torch.float32))


@operator(cast=widened, differentiable=True)
def all_reduce_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", gradient: str = "partial",
    team: str = WORLD,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ops.all_reduce_rms_norm. team: a name."""
    require_meaning(whole.NAME, whole.WAY, gradient)
    options: Any = {"team": team_of(whole.NAME, team), "schedule": schedule, "gradient": gradient}
    return whole.all_reduce_rms_norm(x, residual, weight, eps, **options)


@operator(cast=widened)
def scaled_all_reduce_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor, Tensor]:
    """all_reduce_rms_norm with rows of 8 bits: their values, their scales, and the new residual."""
    options: Any = {"team": team_of(whole.NAME, team), "schedule": schedule, "out_dtype": KIND}
    made, kept = whole.all_reduce_rms_norm(x, residual, weight, eps, **options)
    return (*made, kept)


@operator(cast=widened, differentiable=True)
def reduce_scatter_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor]:
    """ops.reduce_scatter_rms_norm. team: a name."""
    return shared.reduce_scatter_rms_norm(x, residual, weight, eps, team=team_of(shared.NAME, team), schedule=schedule)


@operator(cast=widened)
def scaled_reduce_scatter_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor, Tensor]:
    """reduce_scatter_rms_norm with rows of 8 bits: their values, their scales, and the new residual."""
    options: Any = {"team": team_of(shared.NAME, team), "schedule": schedule, "out_dtype": KIND}
    made, kept = shared.reduce_scatter_rms_norm(x, residual, weight, eps, **options)
    return (*made, kept)


@operator(cast=widened, differentiable=True)
def reduce_scatter_rms_norm_all_gather(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", gradient: str = "partial",
    team: str = WORLD,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ops.reduce_scatter_rms_norm_all_gather. team: a name."""
    require_meaning(shared.GATHER, shared.WAYS[shared.GATHER], gradient)
    options: Any = {"team": team_of(shared.GATHER, team), "schedule": schedule, "gradient": gradient}
    return shared.reduce_scatter_rms_norm_all_gather(x, residual, weight, eps, **options)


@operator(cast=widened)
def scaled_reduce_scatter_rms_norm_all_gather(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor, Tensor]:
    """reduce_scatter_rms_norm_all_gather with rows of 8 bits: their values, their scales, and the new residual."""
    options: Any = {"team": team_of(shared.GATHER, team), "schedule": schedule, "out_dtype": KIND}
    made, kept = shared.reduce_scatter_rms_norm_all_gather(x, residual, weight, eps, **options)
    return (*made, kept)


def _fake(name: str, gathered: bool) -> None:
    """Tell torch the shapes and types of what an operator and its scaled form return. gathered: all rows are made."""

    def plain(x, residual, weight, eps=1e-6, *, schedule="auto", gradient="partial", team):  # type: ignore[no-untyped-def]
        return torch.empty_like(x if gathered else residual), torch.empty_like(residual)

    def scaled(x, residual, weight, eps=1e-6, *, schedule="auto", team):  # type: ignore[no-untyped-def]
        return *_numbers(x if gathered else residual), torch.empty_like(residual)

    register_fake(f"pyshmem::{name}", plain)
    register_fake(f"pyshmem::scaled_{name}", scaled)


def _differentiable(name: str, way: Way) -> None:
    """Give an operator its gradients."""

    def remember(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
        x, _, weight, eps = inputs
        ctx.save_for_backward(weight, output[1])
        ctx.needed = needed_of(inputs)
        ctx.options = Options(len(x), eps, keyword_only_inputs.get("gradient", "partial"))
        ctx.perform = ByHandle(keyword_only_inputs["team"])

    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        found = gradients_of(way, ctx.perform, ctx.saved_tensors, ctx.needed, given, ctx.options)
        return *found, None

    register_autograd(f"pyshmem::{name}", backward, setup_context=remember)


for _name, _way in {whole.NAME: whole.WAY, **shared.WAYS}.items():
    _differentiable(_name, _way)

for _name, _gathered in ((whole.NAME, True), (shared.NAME, False), (shared.GATHER, True)):
    _fake(_name, _gathered)
