"""Row by row: neighbouring tiles, one after the other, all sums of a tile side by side in the threads of one warp.

With many sums an atom keeps a warp busy: spmm loads a row of a matrix for it. Tiles of more than ``size`` atoms are split.
Idea: GE-SpMM (Huang et al., SC 2020), with segments of about equal cost as in Merrill and Garland (SC 2016).
"""

from __future__ import annotations

from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.schedules.nonzero_split import at_equal_atoms
from pyshmem.irregular.sequences import FIXED, PART


def programs(tiles: int, atoms: int, size: int) -> int:
    """How many there are, about."""
    return (atoms + FIXED * tiles) // max(size // PART, 1)


SCHEDULE = Schedule(at_equal_atoms, programs, size=256, flat=False, splits=True, warps=1, of_atoms=True, order="place")
