"""Schedules, a file each: how a matrix is cut into segments, and which program takes which segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import triton
import triton.language as tl

Name = Literal[
    "auto", "program_mapped", "row_split", "group_mapped", "row_blocks", "merge_path", "nonzero_split", "dynamic",
    "by_length", "row_by_row",
]  # fmt: skip


@triton.jit
def in_turn(queue, segment, programs):
    """Return the segment that a program works on after ``segment``: every ``programs``-th, without a queue."""
    return tl.cast(segment, tl.int32) + programs


class Schedule(NamedTuple):
    """A way to cut a matrix into segments of about ``size``, in whatever unit its functions count.

    begins: a jit function (offsets, tiles, atoms, segment, size) that returns (tile, atom), where a segment begins. It
        ends where the next begins: segment 0 begins at (0, 0), segment ``segments(...)`` at (tiles, atoms). After the last
        atom of a tile the next tile begins. All numbers have the type of offsets.
    segments: a function (tiles, atoms, size) on the host that returns the number of segments.
    flat: whether a program goes through the atoms of a segment in one sequence; if not, several tiles side by side.
    splits: whether segments may begin within a tile. Such segments must be flat.
    take: a jit function (queue, segment, programs) that returns a program's next segment. queue: an int32 word, first 0.
    queued: whether take uses the queue, adding 1 in each call. As many programs start as run at once, and take segments
        until there are none. Without a queue each segment has its own program.
    warps: of a program.
    of_atoms: whether ``size`` counts atoms rather than tiles.
    order: "length" or "place", in whose order programs get tiles, and parts of at most ``size`` atoms of longer ones.
        begins is not called.
    """

    begins: Any
    segments: Callable[[int, int, int], int]
    size: int
    flat: bool
    splits: bool = False
    take: Any = in_turn
    queued: bool = False
    warps: int = 4
    of_atoms: bool = False
    order: Literal["", "length", "place"] = ""

    @property
    def whole(self) -> bool:
        """Whether a segment is as many whole tiles as have about ``size`` atoms."""
        return self.of_atoms and not self.splits
