"""Dynamic: programs take the next group of tiles from a queue, an atomic counter, when they have finished one.

A program with a long group takes fewer groups. Which program takes a group does not change the result.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.schedules.program_mapped import blocks_of_tiles, whole_tiles


@triton.jit
def from_queue(queue, piece, programs):
    """Return the next piece that no program has taken."""
    return tl.atomic_add(queue, 1, sem="relaxed")


SCHEDULE = Schedule(whole_tiles, blocks_of_tiles, size=32, flat=True, take=from_queue, queued=True)
