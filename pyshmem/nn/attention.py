"""Attention whose heads, or whose tokens, are divided among the PEs of a team."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.nn.cuts import place_in
from pyshmem.nn.linear import ColumnParallelLinear, RowParallelLinear
from pyshmem.nn.replicated import SequenceParallelLinear
from pyshmem.ops import torch as tp
from pyshmem.ops.attention.segments import ORDERS, Order


class Attention(torch.nn.Module):
    """Self-attention of (tokens, batch, width): each PE of the team has its tokens of x and of the result, and some heads.

    Without a team it has all heads and tokens. qkv and out are linear layers, and their weights those of such a layer.
    """

    def __init__(
        self, width: int, heads: int, causal: bool = True, bias: bool = False, team: str | None = None, **more: Any
    ) -> None:
        """team: a name, or None. Errors: ArgumentError."""
        super().__init__()
        if width % heads:
            refuse(ArgumentError, "Attention", "heads", f"{heads}, with a width of {width}", "a divisor of the width")
        self.dim, self.heads, self.causal = width // heads, heads, causal
        if team is None:
            self.qkv = torch.nn.Linear(width, 3 * width, bias, **more)
            self.out = torch.nn.Linear(width, width, bias, **more)
        else:
            _require_heads(heads, team)
            self.qkv = ColumnParallelLinear(width, 3 * width, bias, team, 3, **more)
            self.out = RowParallelLinear(width, width, bias, team, **more)

    @classmethod
    def of(cls, attention: Attention, team: str = "world") -> Attention:
        """Return this PE's share of an Attention without a team. Errors: ArgumentError."""
        _require_whole("Attention", attention)
        _require_heads(attention.heads, team)
        made = _empty(cls, attention)
        made.qkv = ColumnParallelLinear.of(attention.qkv, team, 3)
        made.out = RowParallelLinear.of(attention.out, team)
        return made

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, self.dim)).permute(2, 1, 3, 0, 4)  # each: batch, heads, tokens, dim
        found = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(found.permute(2, 0, 1, 3).flatten(2))  # type: ignore[no-any-return]


class ContextParallelAttention(Attention):
    """Attention for this PE's tokens, over those of all PEs: each PE has all heads and weights, for sequences of any length.

    x and the result: (tokens of this PE, batch, width).  order: "contiguous", or "zigzag", which makes work even under
    a causal mask: PE p of n has segments p and 2 n - 1 - p of 2 n.
    """

    def __init__(
        self, width: int, heads: int, causal: bool = True, bias: bool = False, team: str = "world",
        order: Order = "contiguous", **more: Any,
    ) -> None:  # fmt: skip
        """team: a name. Errors: ArgumentError."""
        super().__init__(width, heads, causal, bias, **more)
        self._divide(team, order)

    @classmethod
    def of(cls, attention: Attention, team: str = "world", order: Order = "contiguous") -> ContextParallelAttention:
        """Return a layer with the parameters of an Attention without a team. Errors: ArgumentError."""
        _require_whole(cls.__name__, attention)
        made = _empty(cls, attention)
        made.qkv, made.out = attention.qkv, attention.out
        made._divide(team, order)
        return made  # type: ignore[no-any-return]

    def _divide(self, team: str, order: Order) -> None:
        if order not in ORDERS:
            refuse(ArgumentError, type(self).__name__, "order", repr(order), " or ".join(map(repr, ORDERS)))
        self.team, self.order = team, order
        self.qkv, self.out = (SequenceParallelLinear.of(each, team) for each in (self.qkv, self.out))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, self.heads, self.dim)).permute(2, 1, 0, 3, 4).contiguous()
        found = tp.attention(*parts.unbind(), causal=self.causal, order=self.order, team=self.team)
        return self.out(found.transpose(0, 1).flatten(2))  # type: ignore[no-any-return]


def _empty(kind: Any, attention: Attention) -> Any:
    """Return a module of this kind, with the numbers of an Attention and without layers."""
    made = kind.__new__(kind)
    torch.nn.Module.__init__(made)
    made.dim, made.heads, made.causal = attention.dim, attention.heads, attention.causal
    return made


def _require_whole(routine: str, attention: Any) -> None:
    """Errors: ArgumentError."""
    if type(attention) is not Attention or isinstance(attention.qkv, ColumnParallelLinear):
        refuse(ArgumentError, routine, "module", type(attention).__name__, "an Attention without a team")


def _require_heads(heads: int, team: str) -> None:
    """Errors: ArgumentError."""
    _, n = place_in("Attention", team)
    if heads % n:
        refuse(ArgumentError, "Attention", "heads", str(heads), f"a multiple of the {n} PEs of the team")
