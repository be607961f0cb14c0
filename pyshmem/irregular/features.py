"""Features of a matrix that cost less than a product: one pass over its offsets.

Idea: the features of Seer (arXiv 2403.17017).
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
    """The size of a matrix, and the lengths of its rows.

    uneven: the standard deviation of the lengths divided by their mean.  longest: the greatest of them.
    empty: the fraction of the rows without elements.
    """

    rows: int
    columns: int
    atoms: int
    mean: float
    uneven: float
    longest: int
    empty: float


@triton.jit
def summarise_lengths(offsets, tiles, mean, summaries, BLOCK: tl.constexpr):
    """Store for each program's rows: the sum of squared differences from the mean, the longest, how many are empty."""
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
    place = summaries + tl.program_id(0) * 3
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
    summaries = torch.empty((programs, 3), dtype=torch.float32, device=matrix.device)
    summarise_lengths[(programs,)](matrix.offsets, rows, float(mean), summaries, BLOCK=_BLOCK)
    squares, longest, empty = summaries.cpu().double().T
    uneven = float(squares.sum() / rows) ** 0.5 / max(mean, 1e-9)
    return Features(rows, matrix.shape[1], atoms, mean, uneven, int(longest.max()), float(empty.sum()) / rows)
