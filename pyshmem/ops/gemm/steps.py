"""What the steps of all schedules have in common: their memory, the library's products, and how they serve fewer rows.

The vendor's library makes whole products, through torch.matmul and torch._scaled_mm; where it has none, our kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any

import torch

from pyshmem.ops.gemm.gemm_kernel import alone
from pyshmem.ops.gemm.problem import Problem, operand_of
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import LINES, NONE, WHOLE
from pyshmem.ops.plans import twin
from pyshmem.ops.shares import share_of, start_of
from pyshmem.ops.workspace import Workspace

RESULTS = ("result 0", "result 1")
SHORTEST = 32  # K of 8-bit floats: cuBLAS has no kernel for 16
Multiply = Callable[..., Any]  # of a, b, out, and the scales of a and b, if there are any


class Steps:
    """Memory and kernels are made once; ``cut`` sets what depends on the rows."""

    epilogue = True  # whether the product has it, and not what follows

    @classmethod
    def serves(cls, problem: Problem) -> bool:
        """Whether steps for more rows serve a problem, the same on all PEs: our kernels are made for the rows of a product.

        Which products of 8-bit floats the library has depends on layouts, which are private to a PE.
        """
        return problem.scaling == NONE and by_library(problem, cls.epilogue) is not None

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        """Set what depends on the rows. a, b: operands of this problem, or of one with fewer rows."""
        raise NotImplementedError

    def resized(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> Any:
        """Return the steps of a problem with fewer rows, which has the same memory and kernels."""
        made = twin(self)
        made.cut(problem, a, b)
        return made


def workspace_of(
    problem: Problem, made: Workspace | None, alike: tuple[int, ...] | None = (),
    **more: tuple[tuple[int, ...], torch.dtype],
) -> Workspace:  # fmt: skip
    """Return the memory of a plan: two results, if peers write them, and what its schedule wants.

    made: what the plan has already, for operands of another layout. Otherwise it is allocated, collectively over the team,
        or it is that of a plan for other rows, which may be shared if no PE writes to it before all PEs have ended the
        call before.
    alike: what such plans must have in common, beside operator, options, types, N and K; None: they do not share memory.
    """
    if made is not None:
        return made
    results = dict.fromkeys(RESULTS, (problem.result, problem.dtype)) if problem.symmetric else {}
    kind: tuple[object, ...] = ()
    if alike is not None:
        options = problem.options._replace(size=None)
        kind = (problem.N, problem.n, problem.K, problem.a.dtype, problem.b.dtype, problem.scaling, problem.split)
        kind = (*kind, options, *alike)
    return Workspace(problem.operator, problem.team, results | more, kind)


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


def rows_of(problem: Problem, pe: int) -> tuple[int, int]:
    """Return (first, last + 1) of the share of ``pe`` in the rows of the result."""
    start = start_of(problem.M, pe, problem.n_pes)
    return start, start + share_of(problem.M, pe, problem.n_pes)


def scales_of_pes(problem: Problem, scales: torch.Tensor) -> list[torch.Tensor]:
    """Return those of the gathered scales that are of each PE: one, or one for each of its rows."""
    every = range(problem.n_pes)
    counts = [1 if problem.scaling == WHOLE else share_of(problem.M, pe, problem.n_pes) for pe in every]
    return [scales[pe, : counts[pe], None] for pe in every]
