"""Layers that each PE has as a whole, for its share of the tokens: their gradients are summed over the team."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.nn.cuts import place_in
from pyshmem.ops import torch as tp

Kind = TypeVar("Kind", bound=torch.nn.Module)


class _Summed(torch.autograd.Function):
    """A parameter itself; its gradient is the sum over all PEs of the team."""

    @staticmethod
    def forward(parameter: Tensor, team: str) -> Tensor:
        return parameter.view_as(parameter)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
        ctx.team = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = tp.all_reduce(gradient.reshape(1, -1), team=ctx.team)
        return total.view(gradient.shape), None


def summed(parameter: Tensor | None, team: str) -> Any:
    """Return a parameter that each PE uses for its own tokens: each PE gets the sum of all PEs' gradients of it."""
    return None if parameter is None else _Summed.apply(parameter, team)


class _OfTokens(torch.nn.Module):
    """What these layers have in common: a team."""

    team = "world"

    @classmethod
    def of(cls: type[Kind], module: torch.nn.Module, team: str = "world") -> Kind:
        """Return a layer with the parameters of ``module``, one of torch's. team: a name. Errors: ArgumentError."""
        place_in(cls.__name__, team)
        kind = cls.__mro__[2]
        if type(module) is not kind:
            refuse(ArgumentError, cls.__name__, "module", type(module).__name__, f"a torch.nn.{kind.__name__}")
        made = cls.__new__(cls)
        made.__dict__.update(module.__dict__)
        made.team = team
        return made


class SequenceParallelLinear(_OfTokens, torch.nn.Linear):
    """torch.nn.Linear for this PE's tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, summed(self.weight, self.team), summed(self.bias, self.team))


class SequenceParallelRMSNorm(_OfTokens, torch.nn.RMSNorm):
    """torch.nn.RMSNorm for this PE's tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, summed(self.weight, self.team), self.eps)


class SequenceParallelLayerNorm(_OfTokens, torch.nn.LayerNorm):
    """torch.nn.LayerNorm for this PE's tokens."""

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (summed(each, self.team) for each in (self.weight, self.bias))
        return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class SequenceParallelEmbedding(_OfTokens, torch.nn.Embedding):
    """torch.nn.Embedding for this PE's tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.embedding(x, summed(self.weight, self.team), self.padding_idx)
