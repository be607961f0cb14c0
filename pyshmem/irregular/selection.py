"""Which schedule suits a matrix and a work, from SpMV and SpMM in float32 of matrices of 20 families on an NVIDIA H200.

See docs/irregular.md for how much slower than the fastest schedule of each matrix that is.
"""

from __future__ import annotations

from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.schedules import Name

LARGE = 500_000  # non-zeros
SHORT = 4  # non-zeros of the longest row up to which large matrices need not be sorted
ALWAYS = 128  # sums of a tile from which on an atom keeps a warp busy
# (sums of a tile, non-zeros of the mean row) from which on rows keep warps busy: of large matrices, and of others
BUSY = (32, 4), (64, 8)


def schedule_for(matrix: CSR, width: int) -> Name:
    """Return the schedule for a work with ``width`` sums of a tile. May wait for torch's current stream."""
    large = matrix.atoms >= LARGE
    many, mean = BUSY[0 if large else 1]
    if width >= ALWAYS or (width >= many and matrix.atoms >= mean * matrix.rows):
        return "row_by_row"
    if width == 1 and large and matrix.longest <= SHORT:
        return "program_mapped"
    return "by_length"
