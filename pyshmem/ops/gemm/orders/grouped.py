"""Grouped order: bands of GROUP rows of tiles, column by column, so that programs that run together share operands in L2."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_at(index, rows, columns, GROUP: tl.constexpr):
    """Return (row, column) of the tile ``index`` of a grid of rows x columns tiles. GROUP 1 is the order by rows."""
    band = GROUP * columns
    first = index // band * GROUP
    height = min(rows - first, GROUP)
    within = index % band
    return first + within % height, within // height
