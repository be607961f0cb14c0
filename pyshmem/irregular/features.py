"""What a matrix looks like, in numbers that cost less than a product: from its offsets, in one pass.

Idea: the known and the gathered features of Seer (arXiv 2403.17017).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.irregular.matrix import CSR
from pyshmem.runtime import interpreter

_BLOCK = 1024  # rows at a time
_PROGRAMS = 2 if interpreter.active() else 256


class Features(NamedTuple):
    """rows, columns, atoms, and the mean of the rows' lengths are known; what follows is gathered from the offsets.

    variance: of the lengths.  longest: the greatest of them.  empty: the part of the rows without elements.
    """

    rows: int
    columns: int
    atoms: int
    mean: float
    variance: float
    longest: int
    empty: float


@triton.jit
def summarise_lengths(offsets, tiles, mean, found, BLOCK: tl.constexpr):
    """Store, for each program, of its part of the rows: the squares of the distances to mean, the longest, the empty."""
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    longest = tl.zeros((BLOCK,), dtype=tl.float32)
    empty = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(tl.program_id(0) * BLOCK, tiles, tl.num_programs(0) * BLOCK):
        rows = start + tl.arange(0, BLOCK)
        live = rows < tiles
        length = (tl.load(offsets + rows + 1, mask=live, other=0) - tl.load(offsets + rows, mask=live, other=0)).to(
            tl.float32
        )
        squares += tl.where(live, (length - mean) * (length - mean), 0)
        longest = tl.maximum(longest, length)
        empty += tl.where(live & (length == 0), 1.0, 0.0)
    place = found + tl.program_id(0) * 3
    tl.store(place, tl.sum(squares))
    tl.store(place + 1, tl.max(longest))
    tl.store(place + 2, tl.sum(empty))


def features(matrix: CSR) -> Features:
    """Return the features of ``matrix``. Waits for torch's current stream.

    Errors: none.
    Spec: none.
    """
    rows, atoms = matrix.rows, matrix.atoms
    mean = atoms / max(rows, 1)
    if not rows:
        return Features(0, matrix.shape[1], atoms, mean, 0.0, 0, 0.0)
    programs = min(-(-rows // _BLOCK), _PROGRAMS)
    found = torch.empty((programs, 3), dtype=torch.float32, device=matrix.device)
    summarise_lengths[(programs,)](matrix.offsets, rows, float(mean), found, BLOCK=_BLOCK)
    parts = found.cpu().double()
    squares, longest, empty = float(parts[:, 0].sum()), int(parts[:, 1].max()), float(parts[:, 2].sum())
    return Features(rows, matrix.shape[1], atoms, mean, squares / rows, longest, empty / rows)
