"""Replaces layers of a model by divided ones, as a plan says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.nn import replicated
from pyshmem.nn.attention import Attention, ContextParallelAttention
from pyshmem.nn.experts import Experts
from pyshmem.nn.linear import ColumnParallelLinear, RowParallelLinear
from pyshmem.ops.attention.segments import Order

Step = Callable[[torch.nn.Module, str], torch.nn.Module]  # of a module and the name of a team
NAME = "parallelize"
_WHOLE = {
    torch.nn.Linear: replicated.SequenceParallelLinear,
    torch.nn.RMSNorm: replicated.SequenceParallelRMSNorm,
    torch.nn.LayerNorm: replicated.SequenceParallelLayerNorm,
    torch.nn.Embedding: replicated.SequenceParallelEmbedding,
}
_DIVIDED = {Attention: Attention, Experts: Experts}


def parallelize(model: torch.nn.Module, plan: Mapping[str, Step], team: str = "world") -> torch.nn.Module:
    """Replace layers of ``model`` by their shares on this PE, and return it. All PEs have the same model before.

    plan: by patterns of layers' names, as in fnmatch, what becomes of them: columns(parts), rows, whole, divided or
        context(order). Layers that no pattern matches stay as they are.
    team: the name of a team, as in ops.torch.
    Errors: ArgumentError for a pattern that no layer matches, and for a layer that cannot be replaced so.
    """
    for pattern, step in plan.items():
        names = [name for name, _ in model.named_modules() if name and fnmatchcase(name, pattern)]
        if not names:
            refuse(ArgumentError, NAME, "plan", f"{pattern!r}", "a pattern that a layer's name matches")
        for name in names:
            owner, _, leaf = name.rpartition(".")
            parent = model.get_submodule(owner)
            setattr(parent, leaf, step(getattr(parent, leaf), team))
    return model


def columns(parts: int = 1) -> Step:
    """Return the step that divides a Linear by its outputs: of ``parts`` equal pieces each by itself."""
    return lambda module, team: ColumnParallelLinear.of(_linear(module), team, parts)


def rows(module: torch.nn.Module, team: str) -> torch.nn.Module:
    """Divide a Linear by its inputs."""
    return RowParallelLinear.of(_linear(module), team)


def whole(module: torch.nn.Module, team: str) -> torch.nn.Module:
    """Keep all of a Linear, RMSNorm, LayerNorm or Embedding, for this PE's share of the tokens."""
    return _by_type(_WHOLE, module).of(module, team)  # type: ignore[no-any-return]


def divided(module: torch.nn.Module, team: str) -> torch.nn.Module:
    """Divide the heads of an Attention, or the experts of an Experts."""
    return _by_type(_DIVIDED, module).of(module, team)  # type: ignore[no-any-return]


def context(order: Order = "contiguous") -> Step:
    """Return the step that divides the tokens of an Attention, in this order, and keeps all of its heads."""
    return lambda module, team: ContextParallelAttention.of(_by_type({Attention: module}, module), team, order)


def _by_type(table: Mapping[type, Any], module: torch.nn.Module) -> Any:
    if type(module) not in table:
        wants = "one of " + ", ".join(each.__name__ for each in table)
        refuse(ArgumentError, NAME, "plan", f"a layer of {type(module).__name__}", wants)
    return table[type(module)]


def _linear(module: torch.nn.Module) -> torch.nn.Linear:
    _by_type({torch.nn.Linear: None}, module)
    return module  # type: ignore[return-value]
