"""Operators on tensors that require gradients: they are differentiable by a formula, or refused, never neither.

Gradients are those of the sum of all PEs' losses, as if each PE's tensors were variables of their own. Where all PEs get the
same result, its gradient is "partial": the sum over all PEs of what each one's loss gives. It is "replicated" if all PEs go
on to the same loss, which counts once: then each PE has all of it already, and nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyshmem.runtime.errors import ArgumentError, refuse

KINDS = ("partial", "replicated")
Gradients = tuple[torch.Tensor | None, ...]  # of the operands; None where none is needed
# of what is saved, whether each operand needs a gradient, and the gradients of results
Formula = Callable[..., Gradients]


def recorded(*operands: Any) -> bool:
    """Return whether autograd records a call with these operands."""
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in operands)


def differentiable(perform: Callable[..., Any], formula: Formula, *operands: Any, results: bool = False) -> Any:
    """Return ``perform(*operands)``, for autograd to differentiate by ``formula(saved, needed, *gradients)``.

    results: whether the results, a tuple, are saved behind the operands.
    """
    return _Differentiable.apply(perform, formula, results, *operands)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, perform: Callable[..., Any], formula: Formula, results: bool, *operands: Any) -> Any:
        found = perform(*operands)
        ctx.formula = formula
        ctx.save_for_backward(*operands, *(found if results else ()))
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, None, *ctx.formula(ctx.saved_tensors, ctx.needs_input_grad[3:], *gradients)


def require_none(routine: str, why: str, **operands: Any) -> None:
    """Errors: ArgumentError for an operand that requires a gradient, while autograd records."""
    if not torch.is_grad_enabled():
        return
    for name, each in operands.items():
        if isinstance(each, torch.Tensor) and each.requires_grad:
            wants = f"one that requires none, or torch.no_grad(): {why}"
            refuse(ArgumentError, routine, name, "a tensor that requires a gradient", wants)


def require_kind(routine: str, kind: Any) -> None:
    """Errors: ArgumentError."""
    if kind not in KINDS:
        refuse(ArgumentError, routine, "gradient", repr(kind), " or ".join(map(repr, KINDS)))
