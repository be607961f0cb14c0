"""Schedules: how the atoms and tiles of a matrix are cut into pieces, and how programs come by the pieces. One file each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import triton
import triton.language as tl


@triton.jit
def in_turn(queue, piece, programs):
    """Return the piece that a program works on after ``piece``: every ``programs``-th, without a queue."""
    return tl.cast(piece, tl.int32) + programs


class Schedule(NamedTuple):
    """A way to cut a matrix into pieces of about ``size``, which its functions may count as they like.

    begins: a jit function (offsets, tiles, atoms, piece, size) that returns (tile, atom), the place where a piece begins. It
        ends where the next begins: piece 0 begins at (0, 0), piece ``pieces(...)`` at (tiles, atoms). After the last atom of
        a tile begins the next tile. All in the type of offsets.
    pieces: a function (tiles, atoms, size) on the host that returns the number of pieces.
    flat: whether a program goes through the atoms of a piece in one sequence; if not, through several tiles side by side.
    splits: whether pieces may begin within a tile. Such pieces must be flat.
    take: a jit function (queue, piece, programs) that returns a program's next piece. queue is an int32 word, 0 at first.
    queued: whether take uses the queue, adding 1 in each call. Only as many programs start as run at once, and take pieces
        until there are none. Without a queue there is a program for each piece, which takes one.
    warps: of a program.
    of_atoms: whether ``size`` counts atoms rather than tiles.
    """

    begins: Any
    pieces: Callable[[int, int, int], int]
    size: int
    flat: bool
    splits: bool = False
    take: Any = in_turn
    queued: bool = False
    warps: int = 4
    of_atoms: bool = False

    @property
    def whole(self) -> bool:
        """Whether a piece is as many whole tiles as have about ``size`` atoms."""
        return self.of_atoms and not self.splits
