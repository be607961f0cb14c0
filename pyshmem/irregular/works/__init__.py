"""Works, a file each: what is done with the atoms and tiles of a matrix, on any schedule."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.irregular.matrix import CSR


@triton.jit
def wide(value):
    """Return ``value`` in the type in which sums are made: float64 as it is, narrower types in float32."""
    return value if value.dtype == tl.float64 else value.to(tl.float32)


def sums_of(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which sums of ``dtype`` are made."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def require_dense(routine: str, argument: str, array: Any, matrix: CSR, rows: int, dim: int) -> None:
    """Errors: ArgumentError unless ``array`` is contiguous, has ``rows`` rows, and the matrix's dtype and device."""
    if not isinstance(array, torch.Tensor):
        got = type(array).__name__
    elif (
        array.dim() == dim and array.shape[0] == rows and array.is_contiguous()
        and array.dtype == matrix.values.dtype and array.device == matrix.values.device
    ):  # fmt: skip
        return
    else:
        layout = "contiguous" if array.is_contiguous() else "strided"
        got = f"a {layout} {array.dtype} tensor of shape {tuple(array.shape)} on {array.device}"
    wants = f"a contiguous {matrix.values.dtype} tensor with {dim} dimensions and {rows} rows on {matrix.device}"
    refuse(ArgumentError, routine, argument, got, wants)
