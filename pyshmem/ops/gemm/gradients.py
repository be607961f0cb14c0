"""The gradients of products: of all_gather_gemm by gemm_reduce_scatter, and so on.

Each formula is a function of (perform, operands, needed, gradient, options). perform(name, *operands, **options) calls an
operator of ops or ops.rows by its name, on ``perform.team``; in compiled code it is the one of torch.ops.pyshmem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pyshmem.ops.gradients import Gradients, share_of_rows

Pair = tuple[torch.Tensor, torch.Tensor]


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
