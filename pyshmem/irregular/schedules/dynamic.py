"""Dynamic: programs take the next segment from a queue, an atomic counter, when they have finished one.

A program with a long segment takes fewer. Which program takes a segment does not change the result. Segments are four
times those of row_blocks, since each costs an atomic and the wait for it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.schedules import row_blocks


@triton.jit
def from_queue(queue, segment, programs):
    """Return the next segment that no program has taken."""
    return tl.atomic_add(queue, 1, sem="relaxed")


SCHEDULE = row_blocks.SCHEDULE._replace(size=4 * row_blocks.SCHEDULE.size, take=from_queue, queued=True, warps=8)
