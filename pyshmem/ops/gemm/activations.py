"""What torch's matmul does with its operands: types under autocast, and rows of more than two dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import is_not
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops import autocast

DIVIDED = ("all_gather_gemm", "gemm_all_gather", "gemm_reduce_scatter")  # whose rows, of a or of the result, PEs share


def apply(a: Any, b: Any) -> bool:
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
