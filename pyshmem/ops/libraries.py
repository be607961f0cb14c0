"""Whole products by the vendor's library through torch.matmul, or by our kernel where there is an epilogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyshmem.ops.multiplying import Product
from pyshmem.ops.problem import Problem, operand_of

Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def multiply(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, row: int, column: int, epilogue: bool = True
) -> Multiply:
    """Return a function that stores a @ b to its third argument.

    row, column: the place of its result in the whole one, for the epilogue.  epilogue: whether it is applied here.
    """
    if problem.options.epilogue is None or not epilogue:
        return _library
    m = a.shape[0]
    return Product(problem, "data_parallel", m, operand_of(a), False).alone(a, b, row, column)


def _library(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.matmul(a, b, out=out)
