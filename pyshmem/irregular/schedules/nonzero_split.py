"""Non-zero split: segments have equally many atoms. Empty tiles go to the segment before them and do not count."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.schedules import Schedule


@triton.jit
def at_equal_atoms(offsets, tiles, atoms, segment, size):
    """Return the (tile, atom) after segment * size atoms: all tiles that end there lie before it."""
    atom = tl.minimum(segment * size, atoms)
    low, high = segment * 0, tl.where(segment > 0, tiles, 0)
    while low < high:
        middle = (low + high) // 2
        ended = tl.load(offsets + middle + 1) <= atom
        low = tl.where(ended, middle + 1, low)
        high = tl.where(ended, high, middle)
    return low, atom


def equal_atoms(tiles: int, atoms: int, size: int) -> int:
    """Return the number of segments of ``size`` atoms; one if there are only empty tiles."""
    return max(-(-atoms // size), 1)


SCHEDULE = Schedule(at_equal_atoms, equal_atoms, size=1024, flat=True, splits=True, of_atoms=True)
