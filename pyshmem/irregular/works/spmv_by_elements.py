"""A sparse matrix times a vector that is divided over PEs: the kernel loads each element from its PE when it needs it.

An element that was loaded stays in a cache in local memory for the rest of the product, in one word with the product's
number, so that no program can see a number without its element, and nothing is cleared between products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.irregular.execution import Work, run
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.works import sums_of, wide
from pyshmem.irregular.works.spmv import element


class Operands(NamedTuple):
    """columns: each the number of a PE, and in the low ``bits`` the place in its share.  cache: a word for each column.

    turn: the number of the product, one word.  bits: the last, since Triton 3.6 forgets the constants of a tuple in a
    tuple if no constant follows.
    """

    ctx: Any
    columns: torch.Tensor
    entries: torch.Tensor
    x: torch.Tensor
    cache: torch.Tensor
    turn: torch.Tensor
    y: torch.Tensor
    bits: Any


@triton.jit
def product(operands, atoms, lanes, mask):
    """An element of the matrix times its element of x, on whichever PE that is."""
    column = tl.load(operands.columns + atoms, mask=mask, other=0)
    pe = (column >> operands.bits).to(tl.int32)
    place = column - (column >> operands.bits << operands.bits)
    own = pe == dev.my_pe(operands.ctx)
    near = tl.load(operands.x + place, mask=mask & own, other=0)
    if operands.x.dtype.element_ty.primitive_bitwidth > 32:  # a word has no room for it
        far = dev.load(operands.ctx, operands.x + place, pe, mask=mask & (own == 0), other=0)
    else:
        far = through_cache(operands, column, place, pe, mask & (own == 0))
    return wide(tl.load(operands.entries + atoms, mask=mask)) * wide(tl.where(own, near, far))


@triton.jit
def through_cache(operands, column, place, pe, mask):
    """Load elements of other PEs, those from the cache that are of this product. Two programs may load one element."""
    KIND: tl.constexpr = operands.x.dtype.element_ty
    BITS: tl.constexpr = tl.uint32 if KIND.primitive_bitwidth == 32 else tl.uint16
    turn = tl.load(operands.turn)
    word = tl.load(operands.cache + column, mask=mask, other=0)
    missing = mask & ((word >> 32).to(tl.int32) != turn)
    loaded = dev.load(operands.ctx, operands.x + place, pe, mask=missing, other=0)
    new = (turn.to(tl.int64) << 32) | loaded.to(BITS, bitcast=True).to(tl.int64)
    tl.store(operands.cache + column, new, mask=missing)
    return tl.where(missing, loaded, word.to(BITS).to(KIND, bitcast=True))


class ByElements:
    """Products of ``matrix``, whose columns are as Operands has them. PE i has as many elements as its share."""

    def __init__(self, matrix: CSR, bits: int):
        """Allocate the cache, which is private."""
        self._matrix, self._bits = matrix, tl.constexpr(bits)
        words = matrix.shape[1] if matrix.values.dtype.itemsize <= 4 else 1
        self._cache = torch.zeros(words, dtype=torch.int64, device=matrix.device)
        self._turn = torch.zeros(1, dtype=torch.int32, device=matrix.device)

    def __call__(self, x: torch.Tensor, schedule: str | Schedule, size: int | None) -> torch.Tensor:
        """Return the product with the vector whose shares are in ``x``, symmetric. They must not change meanwhile."""
        self._turn += 1
        matrix, y = self._matrix, x.new_empty(self._matrix.rows)
        ctx = shmem.device_context(device=x.device.type)
        operands = Operands(ctx, matrix.columns, matrix.values, x, self._cache, self._turn, y, self._bits)
        run(Work(product, element, operands, dtype=sums_of(x.dtype)), matrix, schedule, size)
        return y
