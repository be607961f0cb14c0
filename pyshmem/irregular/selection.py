"""Which schedule suits a matrix and a work, from SpMV in float32 of 97 matrices of 20 families on an NVIDIA H200.

See docs/irregular.md for how much slower than the fastest schedule of each matrix that is.
"""

from __future__ import annotations

from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.schedules import Name

LARGE, SHORT = 500_000, 8  # non-zeros from which on, and of the longest row up to which rows need not be sorted
MANY = 64  # sums of a tile from which on an atom keeps a warp busy


def schedule_for(matrix: CSR, width: int) -> Name:
    """Return the schedule for a work with ``width`` sums of a tile. May wait for torch's current stream."""
    if width >= MANY:
        return "row_by_row"
    if width == 1 and matrix.atoms >= LARGE and matrix.longest <= SHORT:
        return "program_mapped"
    return "by_length"
