"""Whole products by the vendor's library through torch.matmul and torch._scaled_mm, or by our kernel where it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any

import torch

from pyshmem.ops.gemm.gemm_kernel import alone
from pyshmem.ops.gemm.problem import Problem, operand_of
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import LINES, NONE

SHORTEST = 32  # K of 8-bit floats: cuBLAS has no kernel for 16
Multiply = Callable[..., Any]  # of a, b, out, and the scales of a and b, if there are any


def multiply(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, row: int, column: int, epilogue: bool = True
) -> Multiply:
    """Return a function that stores a @ b to its third argument.

    row, column: the place of its result in the whole one, for the epilogue.  epilogue: whether it is applied here.
    """
    found = by_library(problem, epilogue)
    if found is not None:
        return found
    if not epilogue:
        problem = without_epilogue(problem)
    return alone(Product(problem, "data_parallel", a.shape[0], operand_of(a), False), a, b, row, column)


def multiply_each(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, blocks: Iterable[tuple[int, int, int]], column: int,
    epilogue: bool = True,
) -> Iterable[Multiply]:  # fmt: skip
    """Return such a function for each block of rows of a, in their order: first, last + 1, and its row of the result."""
    found = by_library(problem, epilogue)
    if found is not None:
        return repeat(found)
    return [multiply(problem, a[i:j], b, row, column, epilogue) for i, j, row in blocks]


def by_library(problem: Problem, epilogue: bool = True) -> Multiply | None:
    """Return the library's product, for any rows; None if it has none. epilogue: as in multiply."""
    if lacks(problem if epilogue else without_epilogue(problem)):
        return None
    return _product if problem.scaling == NONE else partial(_scaled, problem.options.use_fast_accum)


def without_epilogue(problem: Problem) -> Problem:
    """Return the problem of the sums that a later kernel's epilogue gets."""
    return problem._replace(options=problem.options._replace(epilogue=None))


def lacks(problem: Problem) -> str:
    """Return why the library cannot make the products of a problem on this PE; "" if it can."""
    if why := lacks_kind(problem):
        return why
    if problem.scaling == NONE:
        return ""
    if not (problem.a.along and problem.b.along and problem.a.aligned and problem.b.aligned):
        return "of 8-bit floats it takes contiguous rows of a and columns of b, at multiples of 16 bytes"
    if problem.n % 16 or problem.k % 16 or problem.k < SHORTEST or min(problem.m, problem.M // problem.n_pes) < 1:
        return "of 8-bit floats it takes N and K that are multiples of 16, K from 32 on"
    return ""


def lacks_kind(problem: Problem) -> str:
    """Return why the library has no such products, the same on all PEs; "" if it has."""
    if problem.options.epilogue is not None:
        return "it has no epilogues"
    if problem.scaling == NONE:
        return ""
    if {problem.a.dtype, problem.b.dtype} <= {torch.float8_e5m2, torch.float8_e5m2fnuz}:
        return f"it multiplies no two matrices of {problem.a.dtype}"
    if problem.scaling == LINES and problem.dtype is not torch.bfloat16:
        return "of scales of rows and columns it makes bfloat16 only"
    return ""


def _product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.matmul(a, b, out=out)


def _scaled(
    fast: bool, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> None:
    if out.numel():
        torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out.dtype, use_fast_accum=fast, out=out)
