"""The least times of SpMV, as kernels that know no rows: what a product cannot be faster than on this GPU.

EACH_ONCE moves every byte of the matrix, of x and of y once. BY_COLUMNS also loads x as the columns say: where these are
scattered, each element takes a sector of the cache; its loads are spmv's own. Both are launched as pyshmem's kernels are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem import irregular
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular.works.spmv import Operands, product
from pyshmem.kernels.bound_kernels import Prepared, enqueue, may_be_early
from pyshmem.kernels.compiled import current_stream

FLOORS = EACH_ONCE, BY_COLUMNS = "each byte once", "x by columns"
_BLOCK = 1024


@triton.jit(do_not_specialize=["rows", "width", "stored"])
def move(
    offsets, rows, width, stored, operands,
    GATHERS: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Load a block of each array, x by columns if GATHERS, and store a block of y, to which all of them go."""
    if EARLY:
        gpu.follow()
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    atoms = places < stored
    if GATHERS:
        value = tl.where(atoms, product(operands, places, 0, atoms, atoms), 0)
    else:
        column = tl.load(operands.columns + places, mask=atoms, other=0)
        entry = tl.load(operands.entries + places, mask=atoms, other=0)
        value = entry * (tl.load(operands.x + places, mask=places < width, other=0) + column)
    offset = tl.load(offsets + places, mask=places < rows, other=0)
    tl.store(operands.y + places, offset + tl.sum(value), mask=places < rows)


def floors(matrix: irregular.CSR, x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Return the calls by name. They go on torch's current stream."""
    operands = Operands(matrix.columns, matrix.values, x, x.new_empty(matrix.rows))
    return {
        name: partial(_call, _prepared(matrix, operands, gathers), operands)
        for name, gathers in ((EACH_ONCE, False), (BY_COLUMNS, True))
    }


def _prepared(matrix: irregular.CSR, operands: Operands, gathers: bool) -> Prepared:
    early = may_be_early()
    constants = {"GATHERS": gathers, "EARLY": early, "BLOCK": _BLOCK}
    programs = -(-max(matrix.atoms, *matrix.shape) // _BLOCK)
    fixed = matrix.offsets, matrix.rows, matrix.shape[1], matrix.atoms
    return Prepared(move, programs, fixed, (operands,), constants, early)


def _call(kernel: Prepared, operands: Operands) -> None:
    stream = int(current_stream(operands.x.device.index)) if operands.x.is_cuda else 0
    enqueue("floors", [kernel], stream, operands)
