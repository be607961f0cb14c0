"""Granularity: how large segments are, and how many atoms and tiles a program takes at a time."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pyshmem.base import interpreter
from pyshmem.irregular.schedules import Schedule

_MANY = 8
WIDE = tl.constexpr(_MANY)  # with so many sums of a tile, tiles go side by side on all schedules: a scan costs more
_BYTES = 1024  # of sums that a warp has at a time, 4 to 8 a thread; twice as many in one sequence
_WIDE_BYTES = 2048  # the same of wide sums, whose loads are rows of a matrix; with more registers fewer programs fit
# atoms at a time: the least, and the most of segments of tiles and of atoms; with more registers fewer programs fit. The
# interpreter scans one by one.
_LEAST, _MOST = (16, (16, 16)) if interpreter.active() else (128, (2048, 1024))
SEGMENTS = 4  # for each multiprocessor at least, unless they would be smaller than
_SMALLEST = (16, 256)  # tiles, and atoms
# the same where a program of atoms is one warp: so many times the segments, of so many atoms at least
_OF_WARPS = (16, 32)


def blocking(tiles: int, atoms: int, schedule: Schedule, size: int, width: int, itemsize: int) -> tuple[int, int]:
    """Return (BLOCK, ROWS): the atoms in sequence at a time, and 1; or the atoms of each tile at a time, and the tiles.

    width, itemsize: of the sums of a tile.
    """
    mean = -(-atoms // tiles) or 1
    if width >= _MANY:
        most = max(_WIDE_BYTES * schedule.warps // (width * itemsize), 1)
        beside = min(triton.next_power_of_2(mean), 64, most)
        return beside, most // beside
    most = max(_BYTES * schedule.warps // (width * itemsize), 1)
    if schedule.flat:
        block = triton.next_power_of_2(size if schedule.of_atoms else size * mean)
        return min(max(block, _LEAST), _MOST[schedule.of_atoms], max(2 * most, 16)), 1
    beside = min(triton.next_power_of_2(mean), 64)
    rows = max(most // beside, 4)
    return beside, rows if 4 * size > rows else rows // 4  # few sizes: each is compiled


def finishing(spread: int, nbytes: int) -> tuple[int, int]:
    """Return (ROWS, LANES): the split tiles at a time, and the parts of each."""
    lanes = 2 if spread <= 8 else 64
    return max(2 * _BYTES // (lanes * nbytes), 1), lanes


def fitting(schedule: Schedule, tiles: int, atoms: int, wanted: int, width: int = 1, longest: int = 0) -> int:
    """Return the schedule's own size of segments, or less, so that a small matrix has ``wanted`` segments too.

    width: the sums of a tile. With many sums each tile keeps more threads busy, and a segment has fewer tiles.
    longest: the most atoms of a tile. If none need be split by length, a second kernel would cost more than uneven programs.
    """
    size, least = schedule.size, min(schedule.size, _SMALLEST[schedule.of_atoms])
    if schedule.order in ("length", "stream") and width == 1 and longest <= size:
        return size
    if width >= _MANY and not schedule.of_atoms:
        return max(size // width, 1)
    if schedule.of_atoms and schedule.warps == 1:
        wanted, least = wanted * _OF_WARPS[0], _OF_WARPS[1]
    while size > least and schedule.segments(tiles, atoms, size) < wanted:
        size //= 2
    return size


def multiprocessors(device: torch.device) -> int:
    """How many there are. In the interpreter programs run one after the other."""
    return 1 if interpreter.active() else int(torch.cuda.get_device_properties(device).multi_processor_count)
