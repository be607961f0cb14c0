"""The operators that end in RMSNorm for torch's compilers: functions of tensors alone, which return new ones.

A scaled form has its rows in 8 bits: it returns ops.Scaled's values and scales in place of the rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_fake

from pyshmem.ops.float8 import KIND, Scaled
from pyshmem.ops.norms import all_reduce_rms_norm as whole
from pyshmem.ops.norms import reduce_scatter_rms_norm as shared
from pyshmem.ops.torch.team_names import WORLD, operator, team_of


def _numbers(rows: Tensor) -> Scaled:
    """Return room for rows of 8 bits."""
    return Scaled(torch.empty_like(rows, dtype=KIND), rows.new_empty(len(rows), dtype=torch.float32))


@operator()
def all_reduce_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor]:
    """ops.all_reduce_rms_norm. team: a name."""
    return whole.all_reduce_rms_norm(x, residual, weight, eps, team=team_of(whole.NAME, team), schedule=schedule)


@operator()
def scaled_all_reduce_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor, Tensor]:
    """all_reduce_rms_norm with rows of 8 bits: their values, their scales, and the new residual."""
    options: Any = {"team": team_of(whole.NAME, team), "schedule": schedule, "out_dtype": KIND}
    made, kept = whole.all_reduce_rms_norm(x, residual, weight, eps, **options)
    return (*made, kept)


@operator()
def reduce_scatter_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor]:
    """ops.reduce_scatter_rms_norm. team: a name."""
    return shared.reduce_scatter_rms_norm(x, residual, weight, eps, team=team_of(shared.NAME, team), schedule=schedule)


@operator()
def scaled_reduce_scatter_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor, Tensor]:
    """reduce_scatter_rms_norm with rows of 8 bits: their values, their scales, and the new residual."""
    options: Any = {"team": team_of(shared.NAME, team), "schedule": schedule, "out_dtype": KIND}
    made, kept = shared.reduce_scatter_rms_norm(x, residual, weight, eps, **options)
    return (*made, kept)


@operator()
def reduce_scatter_rms_norm_all_gather(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor]:
    """ops.reduce_scatter_rms_norm_all_gather. team: a name."""
    return shared.reduce_scatter_rms_norm_all_gather(
        x, residual, weight, eps, team=team_of(shared.GATHER, team), schedule=schedule
    )


@operator()
def scaled_reduce_scatter_rms_norm_all_gather(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, schedule: str = "auto", team: str = WORLD
) -> tuple[Tensor, Tensor, Tensor]:
    """reduce_scatter_rms_norm_all_gather with rows of 8 bits: their values, their scales, and the new residual."""
    options: Any = {"team": team_of(shared.GATHER, team), "schedule": schedule, "out_dtype": KIND}
    made, kept = shared.reduce_scatter_rms_norm_all_gather(x, residual, weight, eps, **options)
    return (*made, kept)


def _fake(name: str, gathered: bool) -> None:
    """Tell torch the shapes and types of what an operator and its scaled form return. gathered: all rows are made."""

    def plain(x, residual, weight, eps=1e-6, *, schedule="auto", team):  # type: ignore[no-untyped-def]
        return torch.empty_like(x if gathered else residual), torch.empty_like(residual)

    def scaled(x, residual, weight, eps=1e-6, *, schedule="auto", team):  # type: ignore[no-untyped-def]
        return *_numbers(x if gathered else residual), torch.empty_like(residual)

    register_fake(f"pyshmem::{name}", plain)
    register_fake(f"pyshmem::scaled_{name}", scaled)


for _name, _gathered in ((whole.NAME, True), (shared.NAME, False), (shared.GATHER, True)):
    _fake(_name, _gathered)
