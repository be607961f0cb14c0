"""Merge-path: segments have an equal sum of atoms and tiles (Merrill and Garland, SC 2016).

The end of each tile is merged into the sequence of atoms; a segment is ``size`` successive items of the merged sequence.
Long tiles are split, and empty tiles count too, so no segment is larger than another.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.schedules import Schedule


@triton.jit
def along_the_diagonal(offsets, tiles, atoms, segment, size):
    """Return the (tile, atom) after segment * size merged items, by a binary search. A tile ends with its last atom."""
    items = tl.minimum(segment * size, tiles + atoms)
    low, high = tl.maximum(items - atoms, 0), tl.minimum(items, tiles)
    while low < high:
        middle = (low + high) // 2
        # all atoms of the tile, and its end, are among the items
        ended = tl.load(offsets + middle + 1) < items - middle
        low = tl.where(ended, middle + 1, low)
        high = tl.where(ended, high, middle)
    atom = items - low
    ended = (low < tiles) & (items > 0) & (tl.load(offsets + tl.minimum(low + 1, tiles)) == atom)
    return low + tl.where(ended, 1, 0), atom


def equal_items(tiles: int, atoms: int, size: int) -> int:
    """Return the number of segments of ``size`` atoms and ends of tiles."""
    return -(-(tiles + atoms) // size)


SCHEDULE = Schedule(along_the_diagonal, equal_items, size=1008, flat=True, splits=True, of_atoms=True)
