"""Which schedule suits a matrix and a work, from SpMV and SpMM in float32 of matrices of 20 families on an NVIDIA H200.

See docs/irregular.md for how much slower than the fastest schedule of each matrix that is.
"""

from __future__ import annotations

from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.schedules import Name

LARGE = 500_000  # non-zeros
# non-zeros, of how many in the mean row at most, and how many times as many the longest of neighbouring rows may have, or
# how many at all, for which rows need not be sorted by length
STREAM, SHORT, EVEN, FEW = 2_000_000, 20, 3, 10
_NEIGHBOURS, _LONG = 64, 1024
ALWAYS = 128  # sums of a tile from which on an atom keeps a warp busy
# (sums of a tile, non-zeros of the mean row) from which on rows keep warps busy: of large matrices, and of others
BUSY = (32, 4), (64, 8)


def schedule_for(matrix: CSR, width: int) -> Name:
    """Return the schedule for a work with ``width`` sums of a tile. May wait for torch's current stream."""
    large = matrix.atoms >= LARGE
    many, mean = BUSY[0 if large else 1]
    if width >= ALWAYS or (width >= many and matrix.atoms >= mean * matrix.rows):
        return "row_by_row"
    if width == 1 and STREAM <= matrix.atoms <= SHORT * matrix.rows and is_even(matrix):
        return "streamed"
    return "by_length"


def is_even(matrix: CSR) -> bool:
    """Whether the longest of 64 neighbouring rows has few non-zeros, or few times as many as the mean row, on average.

    Very long rows count as if of 1024: a few of them do no harm. Waits for torch's current stream.
    """
    lengths = matrix.offsets.diff().clamp(max=_LONG)
    whole = matrix.rows // _NEIGHBOURS * _NEIGHBOURS
    longest = lengths[:whole].reshape(-1, _NEIGHBOURS).amax(1)
    return bool(longest.double().mean() <= max(EVEN * matrix.atoms / matrix.rows, FEW))
