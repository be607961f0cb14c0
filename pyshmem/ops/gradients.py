"""Operators on tensors that require gradients: they are differentiable by a formula, or refused, never neither.

Gradients are those of the sum of all PEs' losses, as if each PE's tensors were variables of their own. Where all PEs get the
same result, its gradient is "partial": the sum over all PEs of what each one's loss gives. It is "replicated" if all PEs go
on to the same loss, which counts once: then each PE has all of it already, and nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops.shares import share_of, start_of

Gradient = Literal["partial", "replicated"]  # of a result that all PEs have
KINDS = get_args(Gradient)
Gradients = tuple[torch.Tensor | None, ...]  # of the operands; None where none is needed
# of what is saved, whether each operand needs a gradient, and the gradients of results
Formula = Callable[..., Gradients]
_transforms_active = torch._C._are_functorch_transforms_active
Kept = Callable[[tuple[Any, ...], Any], tuple[Any, ...]]


def recorded(*operands: Any) -> bool:
    """Return whether autograd, or a transform of torch.func, records a call with these operands."""
    if torch.is_grad_enabled():
        for each in operands:  # a generator for any() takes a microsecond
            if isinstance(each, torch.Tensor) and each.requires_grad:
                return True
    return transformed(*operands)


def transformed(*operands: Any) -> bool:
    """Return whether one of these operands is a transform's of torch.func, or has a tangent: it has no memory of its own."""
    if not _transforms_active() and forward_ad._current_level < 0:
        return False
    return any(isinstance(each, torch.Tensor) and _of_transform(each) for each in operands)


def _of_transform(each: torch.Tensor) -> bool:
    if torch._C._functorch.is_functorch_wrapped_tensor(each):
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(each).tangent is not None


def require_no_transform(routine: str, **operands: Any) -> None:
    """Errors: ArgumentError for an operand that is a transform's of torch.func."""
    for name, each in operands.items():
        if transformed(each):
            refuse(ArgumentError, routine, name, "a tensor within torch.func", "one outside of its transforms")


def differentiable(
    perform: Callable[..., Any], formula: Formula, *operands: Any, kept: Kept | None = None, once: bool = False
) -> Any:
    """Return ``perform(*operands)``, for autograd to differentiate by ``formula(saved, needed, *gradients)``.

    kept: returns what is saved, of (operands, results); None: the operands.  once: gradients have no gradients.
    """
    return (_Once if once else _Differentiable).apply(perform, formula, kept, *operands)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(perform: Callable[..., Any], formula: Formula, kept: Kept | None, *operands: Any) -> Any:
        return perform(*operands)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.formula, kept, *operands = inputs
        ctx.save_for_backward(*(operands if kept is None else kept(tuple(operands), output)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, None, *ctx.formula(ctx.saved_tensors, ctx.needs_input_grad[3:], *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        wants = "reverse mode: backward, torch.func.grad, vjp or jacrev"
        refuse(ArgumentError, "ops", "operands", "tangents of forward-mode differentiation", wants)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *given: Any) -> Any:
        """One call after the other, as torch does for operators without a rule of their own."""
        pairs = list(zip(given, in_dims, strict=True))
        calls = [[_part(each, dim, i) for each, dim in pairs] for i in range(info.batch_size)]
        results = [_Differentiable.apply(*call) for call in calls]
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results), 0
        found = tuple(map(torch.stack, zip(*results, strict=True)))
        return found, (0,) * len(found)


def _part(each: Any, dim: int | None, i: int) -> Any:
    return each if dim is None else each.select(dim, i).contiguous()


class _Once(_Differentiable):
    backward = staticmethod(once_differentiable(_Differentiable.backward))


def share_of_rows(perform: Any, gradient: torch.Tensor, kind: str) -> torch.Tensor:
    """Return this PE's rows of the gradient of a result that all PEs have. perform: as in rows.OnTeam."""
    if kind == "partial":
        return perform("reduce_scatter_rows", gradient)  # type: ignore[no-any-return]
    me, n, rows = perform.team.me, perform.team.size, gradient.shape[0]
    return gradient[start_of(rows, me, n) :][: share_of(rows, me, n)]


def require_none(routine: str, why: str, **operands: Any) -> None:
    """Errors: ArgumentError for an operand that requires a gradient, while autograd records, or is of torch.func."""
    require_no_transform(routine, **operands)
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
