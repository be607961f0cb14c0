"""What performs the calls of a plan. That of a product serves products with fewer rows, by the same memory and kernels."""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.ops.gemm.library import by_library
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.scaling import NONE
from pyshmem.ops.plans import twin


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
