"""The gradients of moe_dispatch and moe_combine, which are each other's transpose, and of the weights of routers.

``move`` dispatches and combines: its two functions take rows, and ``routing`` of the call that is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pyshmem.ops.experts.schedules import Routing


class Move(NamedTuple):
    """dispatch(x): rows of tokens to experts.  combine(rows, routing): their weighted sums.  perform: as rows.OnTeam."""

    dispatch: Callable[[torch.Tensor], torch.Tensor]
    combine: Callable[[torch.Tensor, Routing], torch.Tensor]
    perform: Any


def of_dispatch(move: Move, routing: Routing, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient of x: the sum of those of its rows."""
    return move.combine(gradient.contiguous(), routing._replace(factors=torch.ones_like(routing.factors)))


def of_combine(
    move: Move, routing: Routing, rows: torch.Tensor, indices: torch.Tensor, experts: int, gradient: torch.Tensor,
    weighted: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """Return the gradients of rows and of this PE's weights. weighted: whether the latter are wanted, on all PEs alike."""
    sent = move.dispatch(gradient.contiguous())
    placed = routing.places >= 0
    at = torch.where(placed, routing.places, len(rows)).long()  # behind the last row: for none
    factors = routing.factors.new_zeros(len(rows) + 1)
    factors.scatter_(0, at.view(-1), routing.factors.reshape(-1))
    filled = torch.zeros_like(factors, dtype=torch.bool).scatter_(0, at.view(-1), True)[:-1, None]
    to_rows = torch.where(filled, sent * factors[:-1, None], 0.0).to(rows.dtype)
    if not weighted:
        return to_rows, None
    products = torch.where(filled, rows.to(factors.dtype) * sent.to(factors.dtype), 0.0).sum(1)
    found = torch.cat([products, products.new_zeros(1)])[at] * placed
    return to_rows, _to_entries(move.perform, found, indices, experts)


def _to_entries(perform: Any, found: torch.Tensor, indices: torch.Tensor, experts: int) -> torch.Tensor:
    """Return numbers for this PE's entries. found: those of all PEs' entries that are here, in the order of experts."""
    me, n = perform.team.me, perform.team.size
    local, room, top = experts // n, len(found) // n, found.shape[1]
    padded = torch.full((room, top), -1, dtype=torch.int32, device=found.device)
    padded[: len(indices)] = indices
    expert = perform("gather_rows", padded, after=found) - me * local
    order = torch.where((expert >= 0) & (expert < local), expert, local).argsort(dim=1, stable=True)
    spread = torch.zeros_like(found).scatter(1, order, found)
    return perform("reduce_scatter_rows", spread)[: len(indices)]  # type: ignore[no-any-return]


def without_rest(rows: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return rows with zeros behind the last expert's, so that what experts make of them has finite gradients."""
    number = torch.arange(len(rows), device=rows.device)
    return torch.where((number < offsets[-1])[:, None], rows, 0.0).to(rows.dtype)
