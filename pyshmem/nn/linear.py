"""Linear layers whose weights are divided: by columns of the result, then by rows of the operand.

A new layer has weights of this PE's generator: make it ``of`` a whole one, or load them by scatter_state_dict.

Idea: Megatron-LM (arXiv 1909.08053) and its sequence parallelism (arXiv 2205.05198): tokens are gathered while the first
product runs, and the sums of the second one are scattered while it runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyshmem.nn.cuts import Cut, place_in, share
from pyshmem.nn.divided import Divided
from pyshmem.nn.replicated import summed
from pyshmem.ops import torch as tp


class ColumnParallelLinear(Divided, torch.nn.Linear):
    """This PE's columns of x @ weight.T + bias: (tokens of this PE, ..., in) to (all tokens, ..., out / n)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, team: str = "world", parts: int = 1, **more: Any
    ) -> None:
        """team: a name.  parts: equal pieces of the columns, each divided by itself: 3 of queries, keys and values."""
        super().__init__(
            in_features, share(type(self).__name__, "out_features", out_features, team, parts), bias, **more
        )
        self.team, self.parts = team, parts

    @property
    def cuts(self) -> dict[str, Cut]:
        """The parameters that are divided."""
        return {"weight": Cut(0, self.parts), "bias": Cut(0, self.parts)}

    @classmethod
    def of(cls, linear: torch.nn.Linear, team: str = "world", parts: int = 1) -> ColumnParallelLinear:
        """Return a layer with this PE's share of the parameters of ``linear``. Errors: ArgumentError."""
        like = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, team, parts, **like)
        return take(made, linear)

    def forward(self, x: Tensor) -> Tensor:
        return tp.all_gather_gemm(x, self.weight.T, bias=self.bias, team=self.team)


class RowParallelLinear(Divided, torch.nn.Linear):
    """This PE's tokens of x @ weight.T + bias: (all tokens, ..., in / n) to (tokens of this PE, ..., out)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, team: str = "world", **more: Any
    ) -> None:
        """team: a name."""
        super().__init__(share(type(self).__name__, "in_features", in_features, team), out_features, bias, **more)
        self.team = team

    @property
    def cuts(self) -> dict[str, Cut]:
        """The parameters that are divided: each PE has all of the bias."""
        return {"weight": Cut(1)}

    @classmethod
    def of(cls, linear: torch.nn.Linear, team: str = "world") -> RowParallelLinear:
        """Return a layer with this PE's share of the parameters of ``linear``. Errors: ArgumentError."""
        like = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        return take(cls(linear.in_features, linear.out_features, linear.bias is not None, team, **like), linear)

    def forward(self, x: Tensor) -> Tensor:
        return tp.gemm_reduce_scatter(x, self.weight.T, bias=summed(self.bias, self.team), team=self.team)


def take(made: Any, whole: torch.nn.Module) -> Any:
    """Give a layer its share of the parameters of ``whole``, and return it. A frozen one stays frozen."""
    me, n = place_in(type(made).__name__, made.team)
    with torch.no_grad():
        for name, each in whole.named_parameters(recurse=False):
            own = getattr(made, name)
            own.copy_(made.cuts[name].take(each, me, n) if name in made.cuts else each)
            own.requires_grad_(each.requires_grad)
    return made
