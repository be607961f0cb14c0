"""Dynamic: programs take the next block of rows from a queue, an atomic counter, when they have finished one.

A program with a long block takes fewer blocks. Which program takes a block does not change the result. Blocks are several
times those of row_blocks, since each costs an atomic and the wait for it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.schedules import row_blocks


@triton.jit
def from_queue(queue, piece, programs):
    """Return the next piece that no program has taken."""
    return tl.atomic_add(queue, 1, sem="relaxed")


SCHEDULE = row_blocks.SCHEDULE._replace(size=4 * row_blocks.SCHEDULE.size, take=from_queue, queued=True)
