"""Program-mapped: a segment is a block of whole tiles, and its program goes through several tiles side by side.

Best for tiles of about equal length. The longest tile of those side by side sets the time for all of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.schedules import Schedule


@triton.jit
def whole_tiles(offsets, tiles, atoms, segment, size):
    """Return where a segment of ``size`` whole tiles begins."""
    tile = tl.minimum(segment * size, tiles)
    return tile, tl.load(offsets + tile)


def blocks_of_tiles(tiles: int, atoms: int, size: int) -> int:
    """Return the number of segments of ``size`` whole tiles."""
    return -(-tiles // size)


SCHEDULE = Schedule(whole_tiles, blocks_of_tiles, size=256, flat=False)
