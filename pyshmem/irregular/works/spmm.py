"""A sparse matrix times a dense one, 128 columns at a time.

Flops: 2 for each non-zero and column. Bytes: the matrix for every 128 columns, b at each miss of the cache, c once.
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

COLUMNS = 128  # of b at a time


class Operands(NamedTuple):
    """The tensors of a product of ``width`` columns of b, from ``first`` on. pitch: of b and c, in elements."""

    columns: torch.Tensor
    entries: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    first: int
    width: int
    pitch: int


@triton.jit
def products(operands, atoms, lanes, mask):
    """An element of the matrix times its row of b."""
    row = tl.load(operands.columns + atoms, mask=mask, other=0).to(tl.int64)
    b = tl.load(operands.b + row * operands.pitch + operands.first + lanes, mask=mask & (lanes < operands.width))
    return wide(tl.load(operands.entries + atoms, mask=mask)) * wide(b)


@triton.jit
def row(operands, tiles, lanes, sums, mask):
    """Store rows of c."""
    place = tiles.to(tl.int64) * operands.pitch + operands.first + lanes
    tl.store(operands.c + place, sums.to(operands.c.dtype.element_ty), mask=mask & (lanes < operands.width))


def spmm(matrix: CSR, b: torch.Tensor, schedule: Name = "auto", size: int | None = None) -> torch.Tensor:
    """Return ``matrix`` times ``b``, contiguous, of the matrix's dtype and device. Sums are in float32 or float64.

    schedule: "auto", or a name in SCHEDULES.  size: rows of more elements are split; None is the schedule's own.
    Order: on torch's current stream. The same bits in every run.
    Errors: ArgumentError.
    Spec: none.
    """
    require_dense("spmm", "b", b, matrix, matrix.shape[1], 2)
    pitch = b.shape[1]
    c = b.new_empty(matrix.rows, pitch)
    for first in range(0, pitch, COLUMNS):
        width = min(COLUMNS, pitch - first)
        operands = Operands(matrix.columns, matrix.values, b, c, first, width, pitch)
        run(Work(products, row, operands, width, sums_of(b.dtype)), matrix, schedule, size)
    return c
