"""Row-split: a group of lanes per tile, as many as the mean tile has atoms, and one warp a program.

Tiles wait for the longest of those that share a warp; with program_mapped they wait for the longest of a whole program.
Idea: the vector kernel of Bell and Garland (SC 2009), with the groups of Reguly and Giles (InPar 2012).
"""

from __future__ import annotations

from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.schedules.program_mapped import blocks_of_tiles, whole_tiles

SCHEDULE = Schedule(whole_tiles, blocks_of_tiles, size=32, flat=False, warps=1)
