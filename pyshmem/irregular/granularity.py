"""Granularity: how many atoms of a tile a program has at most, so that a small matrix has programs for the whole GPU."""

from __future__ import annotations

import torch

from pyshmem.base import interpreter
from pyshmem.irregular.schedules import Schedule

_BYTES = 2048  # of the parts' sums that a warp adds at a time
PROGRAMS = 4  # for each multiprocessor at least, unless a program would have fewer atoms than
_LEAST = 256
# the same where a program is one warp: so many times the programs, of so many atoms at least
_OF_WARPS = (16, 32)


def finishing(spread: int, nbytes: int) -> tuple[int, int]:
    """Return (ROWS, LANES): the split tiles at a time, and the parts of each."""
    lanes = 2 if spread <= 8 else 64
    return max(_BYTES // (lanes * nbytes), 1), lanes


def fitting(schedule: Schedule, tiles: int, atoms: int, wanted: int, width: int = 1, longest: int = 0) -> int:
    """Return the schedule's own size, or less, so that a small matrix has ``wanted`` programs too.

    width: the sums of a tile.  longest: the most atoms of a tile. If none need be split by length, a second kernel would
    cost more than uneven programs.
    """
    size, least, of_warps = schedule.size, _LEAST, schedule.warps == 1
    if not of_warps and width == 1 and longest <= size:
        return size
    if of_warps:
        wanted, least = wanted * _OF_WARPS[0], _OF_WARPS[1]
    while size > least and schedule.programs(tiles, atoms, size) < wanted:
        size //= 2
    return size


def multiprocessors(device: torch.device) -> int:
    """How many there are. In the interpreter programs run one after the other."""
    return 1 if interpreter.active() else int(torch.cuda.get_device_properties(device).multi_processor_count)
