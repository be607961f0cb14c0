"""Schedules, a file each: how a matrix is cut into segments. Each segment has its own program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Name = Literal["auto", "program_mapped", "nonzero_split", "by_length", "streamed", "row_by_row"]


class Schedule(NamedTuple):
    """A way to cut a matrix into segments of about ``size``, in whatever unit its functions count.

    begins: a jit function (offsets, tiles, atoms, segment, size) that returns (tile, atom), where a segment begins. It
        ends where the next begins: segment 0 begins at (0, 0), segment ``segments(...)`` at (tiles, atoms). After the last
        atom of a tile the next tile begins. All numbers have the type of offsets.
    segments: a function (tiles, atoms, size) on the host that returns the number of segments.
    flat: whether a program goes through the atoms of a segment in one sequence; if not, several tiles side by side.
    splits: whether segments may begin within a tile. Such segments must be flat.
    warps: of a program.
    of_atoms: whether ``size`` counts atoms rather than tiles.
    order: "length", "stream" or "place", by which programs get tiles, and parts of at most ``size`` atoms of longer ones:
        sorted by length, or in their order. begins is not called.
    """

    begins: Any
    segments: Callable[[int, int, int], int]
    size: int
    flat: bool
    splits: bool = False
    warps: int = 4
    of_atoms: bool = False
    order: Literal["", "length", "stream", "place"] = ""
