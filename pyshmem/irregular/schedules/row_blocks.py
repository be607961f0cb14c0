"""Row blocks: a segment is as many whole tiles as have about ``size`` atoms; a long tile at its end is one by itself.

No tile is split, so no second kernel is needed: for small matrices that is worth more than equal segments. Idea: the row
blocks of Greathouse and Daga (SC 2014).
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.schedules.nonzero_split import equal_atoms


@triton.jit
def first_tile_from(offsets, tiles, atoms, segment, size):
    """Return the first tile that begins at atom segment * size or later. The last segment ends after all tiles."""
    high = tl.where(segment > 0, tiles, 0)
    low = tl.where(segment * size >= atoms, high, 0)
    while low < high:
        middle = (low + high) // 2
        before = tl.load(offsets + middle) < segment * size
        low = tl.where(before, middle + 1, low)
        high = tl.where(before, high, middle)
    return low, tl.load(offsets + low)


SCHEDULE = Schedule(first_tile_from, equal_atoms, size=896, flat=True, of_atoms=True)
