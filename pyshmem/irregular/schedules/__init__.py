"""Schedules, a file each: how the tiles of a matrix are divided over the programs of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Name = Literal["auto", "by_length", "streamed", "row_by_row"]


class Schedule(NamedTuple):
    """A way to divide a matrix.

    parted: a function (matrix, size, width) that returns its Parted, for works with ``width`` sums of a tile.
    size: tiles of more atoms are split.  programs: how many there are, about, of (tiles, atoms, size).
    warps: of a program.
    """

    parted: Callable[[Any, int, int], Any]
    programs: Callable[[int, int, int], int]
    size: int
    warps: int
