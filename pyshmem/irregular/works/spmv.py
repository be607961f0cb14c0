"""A sparse matrix times a vector.

Flops: 2 for each non-zero. Bytes: values, columns, offsets and y once, x at each miss of the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.irregular.execution import Work, run
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.schedules import Name
from pyshmem.irregular.works import require_dense, sums_of, wide


class Operands(NamedTuple):
    """The tensors of a product."""

    columns: torch.Tensor
    entries: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor


@triton.jit
def product(operands, atoms, lanes, mask, near):
    """An element of the matrix, which is read once, times its element of x, which the caches keep."""
    column = tl.load(operands.columns + atoms, mask=near, other=0, eviction_policy="evict_first")
    entry = tl.load(operands.entries + atoms, mask=near, eviction_policy="evict_first")
    return wide(entry) * wide(tl.load(operands.x + column, mask=mask, eviction_policy="evict_last"))


@triton.jit
def element(operands, tiles, lanes, sums, mask):
    """Store elements of y."""
    tl.store(operands.y + tiles + lanes, sums.to(operands.y.dtype.element_ty), mask=mask)


def spmv(matrix: CSR, x: torch.Tensor, schedule: Name = "auto", size: int | None = None) -> torch.Tensor:
    """Return ``matrix`` times ``x``, a vector of the matrix's dtype and device. Sums are in float32 or float64.

    schedule: "auto", or a name in SCHEDULES.  size: rows of more elements are split; None is the schedule's own.
    Order: on torch's current stream. The same bits in every run.
    Errors: ArgumentError.
    Spec: none.
    """
    require_dense("spmv", "x", x, matrix, matrix.shape[1], 1)
    y = x.new_empty(matrix.rows)
    operands = Operands(matrix.columns, matrix.values, x, y)
    run(Work(product, element, operands, dtype=sums_of(x.dtype)), matrix, schedule, size)
    return y
