"""A mixture of experts that are divided among the PEs of a team."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pyshmem.nn import grouped
from pyshmem.nn.cuts import Cut, share
from pyshmem.nn.divided import Divided
from pyshmem.nn.linear import take
from pyshmem.nn.replicated import summed
from pyshmem.ops import torch as tp
from pyshmem.ops.autocast import lowered


class Experts(Divided):
    """For each token the sum of what its best experts make of it, relu(x @ up)² @ down, times the scores of a router.

    Each PE of the team has its tokens of x, the whole router, and an equal block of experts. Without a team: all of them.
    """

    def __init__(
        self, width: int, hidden: int, experts: int, top: int = 2, team: str | None = None, **more: Any
    ) -> None:
        """top: experts of a token.  team: a name, or None. Errors: ArgumentError."""
        super().__init__()
        self.team, self.experts, self.top = team, experts, top
        local = experts if team is None else share("Experts", "experts", experts, team)
        self.router = torch.nn.Parameter(torch.randn(experts, width, **more) * width**-0.5)
        self.up = torch.nn.Parameter(torch.randn(local, width, hidden, **more) * width**-0.5)
        self.down = torch.nn.Parameter(torch.randn(local, hidden, width, **more) * hidden**-0.5)

    @property
    def cuts(self) -> dict[str, Cut]:
        """The parameters that are divided."""
        return {} if self.team is None else {"up": Cut(0), "down": Cut(0)}

    @classmethod
    def of(cls, whole: Experts, team: str = "world") -> Experts:
        """Return this PE's share of an Experts without a team. Errors: ArgumentError."""
        _, width, hidden = whole.up.shape
        like: Any = {"device": whole.up.device, "dtype": whole.up.dtype}
        return take(cls(width, hidden, whole.experts, whole.top, team, **like), whole)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        router = self.router if self.team is None else summed(self.router, self.team)
        scores = functional.linear(tokens, router).softmax(-1, dtype=torch.promote_types(x.dtype, torch.float32))
        weights, chosen = scores.topk(self.top)
        make = self._here if self.team is None else self._over_pes
        return make(tokens, chosen, weights).view(x.shape)

    def _here(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        order = chosen.flatten().argsort(stable=True)
        experts = torch.arange(self.experts + 1, device=x.device)
        offsets = torch.searchsorted(chosen.flatten()[order], experts, out_int32=True)
        made = self._make(x[order // self.top], offsets)
        return torch.zeros_like(x).index_add(0, order // self.top, made * weights.flatten()[order, None].to(made.dtype))

    def _over_pes(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        options: Any = {"team": self.team}
        rows, _, offsets, *routing = tp.moe_dispatch(x, chosen, weights, self.experts, **options)
        made = self._make(rows, offsets)
        return tp.moe_combine(made, [x, chosen, weights], routing, self.experts, **options)  # type: ignore[no-any-return]

    def _make(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Return what experts make of rows that are in their order. offsets: where those of each begin."""
        given, up, down = lowered(rows, self.up, self.down)
        hidden = functional.relu(grouped.rows_by_group(given, up, offsets)).square()
        made = grouped.rows_by_group(hidden.to(down.dtype), down, offsets)
        return made.to(rows.dtype)  # not that of autocast: sums are of what the layer was given
