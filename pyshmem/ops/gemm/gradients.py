"""Products as torch's own are: their gradients, types under autocast, and inputs of more than two dimensions.

The gradient of all_gather_gemm is made by gemm_reduce_scatter, and so on. Each formula is a function of (perform, operands,
needed, gradient, options). perform(name, *operands, **options) calls an operator of ops or ops.rows by its name, on
``perform.team``; in compiled code it is the one of torch.ops.pyshmem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import is_not
from typing import Any, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.teams import Team
from pyshmem.ops import autocast
from pyshmem.ops.gemm.problem import is_lined
from pyshmem.ops.gemm.scaling import Scales
from pyshmem.ops.gradients import Gradients, differentiable, require_none, share_of_rows
from pyshmem.ops.rows import OnTeam

Pair = tuple[torch.Tensor, torch.Tensor]
DIVIDED = ("all_gather_gemm", "gemm_all_gather", "gemm_reduce_scatter")  # whose rows, of a or of the result, PEs share


class Options(NamedTuple):
    """What gradients need of a product: fields of problem.Options, and its split."""

    size: int | None = None
    columns: int | None = None
    split: str = "rows"
    gradient: str = "partial"


def _all_gather_gemm(
    perform: Any, operands: Pair, needed: Sequence[bool], gradient: torch.Tensor, options: Options
) -> Gradients:
    a, b = operands
    to_a = perform("gemm_reduce_scatter", gradient, b.T, size=options.columns) if needed[0] else None
    return to_a, perform("gather_rows", a, options.size, after=gradient).T @ gradient if needed[1] else None


def _gemm_reduce_scatter(
    perform: Any, operands: Pair, needed: Sequence[bool], gradient: torch.Tensor, options: Options
) -> Gradients:
    """If both operands want a gradient, all rows are needed twice, and gathered once."""
    a, b = operands
    if not needed[1]:
        return perform("all_gather_gemm", gradient, b.T, size=a.shape[0], columns=options.size), None
    rows = perform("gather_rows", gradient, a.shape[0])
    return rows @ b.T if needed[0] else None, a.T @ rows


def _gemm_all_reduce(
    perform: Any, operands: Pair, needed: Sequence[bool], gradient: torch.Tensor, options: Options
) -> Gradients:
    whole = gradient if options.gradient == "replicated" else perform("all_reduce", gradient)
    return _of_product(operands, needed, whole)


def _gemm_all_gather(
    perform: Any, operands: Pair, needed: Sequence[bool], gradient: torch.Tensor, options: Options
) -> Gradients:
    if options.split == "rows":
        return _of_product(operands, needed, share_of_rows(perform, gradient, options.gradient))
    return _of_product(operands, needed, share_of_rows(perform, gradient.T, options.gradient).T)


def _of_product(operands: Pair, needed: Sequence[bool], gradient: torch.Tensor) -> Gradients:
    a, b = operands
    return gradient @ b.T if needed[0] else None, a.T @ gradient if needed[1] else None


FORMULAS = {
    "all_gather_gemm": _all_gather_gemm,
    "gemm_reduce_scatter": _gemm_reduce_scatter,
    "gemm_all_reduce": _gemm_all_reduce,
    "gemm_all_gather": _gemm_all_gather,
}


def recorded_call(
    perform: Any, operator: str, team: Team, options: Options, a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Return ``perform(a, b)``, a product, for autograd."""
    formula, performed = FORMULAS[operator], OnTeam(team)

    def back(saved: Any, needed: Any, gradient: torch.Tensor) -> Gradients:
        return formula(performed, saved, needed, lined(gradient), options)

    return differentiable(perform, back, a, b)  # type: ignore[no-any-return]


def require_plain(
    operator: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, scales: Scales, reuse: bool,
    epilogue: Any,
) -> None:  # fmt: skip
    """Errors: ArgumentError where there is no formula for what a or b requires."""
    for name, value in (("out", out), ("reuse", reuse or None), ("epilogue", epilogue)):
        if value is not None:
            require_none(operator, f"with {name}= it has no gradients", a=a, b=b)
    if scales:
        require_none(operator, "products of 8-bit floats have no gradients", a=a, b=b)


def lined(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix as products take it: gradients are often expanded scalars."""
    return matrix if is_lined(matrix) else matrix.contiguous()


def needs_matmul(a: Any, b: Any) -> bool:
    """Return whether a product of ``a`` and ``b`` is to be made by as_matmul: all others are made at once."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    if a.dim() > 2:
        return True
    return autocast.enabled() and any(map(is_not, autocast.lowered(a, b), (a, b)))


def as_matmul(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], operator: str, a: torch.Tensor, b: torch.Tensor,
    n_pes: int, size: int | None = None, split: str = "rows",
) -> torch.Tensor:  # fmt: skip
    """Return what ``multiply`` makes of a and b in the type that autocast wants, as torch.matmul casts them.

    a: (D, ..., K): the PEs share the first of the dimensions as they do rows, and results have the others.  size: that of a
    call, which has to be None where they share rows.
    Errors: ArgumentError if D of a reduce-scatter is no multiple of ``n_pes``.
    """
    a, b = autocast.lowered(a, b)
    if a.dim() < 3:
        return multiply(a, b)
    scattered = operator == "gemm_reduce_scatter"
    if scattered and a.shape[0] % n_pes:
        wants = f"a multiple of the {n_pes} PEs, or matrices"
        refuse(ArgumentError, operator, "a", f"{a.shape[0]} in the first of {a.dim()} dimensions", wants)
    if size is not None and operator in DIVIDED and not scattered and split == "rows":
        refuse(ArgumentError, operator, "size", f"{size}, with a of {a.dim()} dimensions", "None, or matrices")
    found = multiply(a.flatten(0, -2), b)
    inner = a.shape[1:-1]
    return found.view(found.shape[0] // max(math.prod(inner), 1), *inner, found.shape[1])
