"""The gradients of the operators that end in RMSNorm, from the sums that the forward pass returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.ops.gradients import Gradients, differentiable, require_kind, require_none, share_of_rows
from pyshmem.ops.rows import OnTeam


class Way(NamedTuple):
    """How an operator exchanges rows. whole: x is summed for all PEs.  gathered: all PEs get all normalised rows."""

    whole: bool
    gathered: bool


class Options(NamedTuple):
    """What gradients need of a call. tokens: the rows of x.  gradient: what those of results on all PEs mean."""

    tokens: int
    eps: float
    gradient: str = "partial"


def require_meaning(routine: str, way: Way, gradient: Any) -> None:
    """Errors: ArgumentError."""
    require_kind(routine, gradient)
    if gradient != "partial" and not (way.whole or way.gathered):
        refuse(ArgumentError, routine, "gradient", repr(gradient), "'partial': each PE has a result of its own")


def recorded_call(
    routine: str, way: Way, call: Callable[..., Any], operands: Sequence[torch.Tensor], options: Options,
    team: Team | None, unable: dict[str, Any],
) -> Any:  # fmt: skip
    """Return what ``call(*operands)`` does, for autograd. operands: x, residual and weight.

    unable: arguments with which it has no gradients, where they are not None or False. Errors: ArgumentError for one.
    """
    for name, value in unable.items():
        if value is not None and value is not False:
            named = dict(zip(("x", "residual", "weight"), operands, strict=True))
            require_none(routine, f"with {name}= it has no gradients", **named)
    perform = OnTeam(TEAM_WORLD if team is None else team)

    def back(saved: Any, needed: Any, *given: torch.Tensor) -> Gradients:
        return gradients_of(way, perform, saved, needed, given, options)

    return differentiable(call, back, *operands, kept=lambda operands, found: (operands[2], found[1]))


def gradients_of(
    way: Way, perform: Any, saved: Sequence[torch.Tensor], needed: Sequence[bool], given: Sequence[torch.Tensor],
    options: Options,
) -> Gradients:  # fmt: skip
    """Return the gradients of x, residual and weight. saved: weight and the sums.  given: of the results, rows and sums."""
    (weight, sums), (to_rows, to_sums) = saved, given
    if way.gathered and not way.whole:
        to_rows = share_of_rows(perform, to_rows, options.gradient)
    to_sums, to_weight = _of_norm(sums, weight, options.eps, to_rows, to_sums)
    to_x = None
    if needed[0] and not way.whole:
        to_x = perform("gather_rows", to_sums, options.tokens)
    elif needed[0]:
        to_x = to_sums if options.gradient == "replicated" else perform("all_reduce", to_sums)
    return to_x, to_sums if needed[1] else None, to_weight if needed[2] else None


def _of_norm(
    sums: torch.Tensor, weight: torch.Tensor, eps: float, to_rows: torch.Tensor, to_sums: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of what RMSNorm normalises and of its weight. to_sums: what else the sums give to the loss."""
    kind = torch.promote_types(sums.dtype, torch.float32)
    wide, given = sums.to(kind), to_rows.to(kind)
    rate = torch.rsqrt(wide.square().mean(1, keepdim=True) + eps)
    made, scaled = wide * rate, given * weight.to(kind)
    to_wide = rate * (scaled - made * (scaled * made).mean(1, keepdim=True))
    return (to_wide + to_sums.to(kind)).to(sums.dtype), (given * made).sum(0).to(weight.dtype)
