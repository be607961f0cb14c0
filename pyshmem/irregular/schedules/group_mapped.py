"""Group-mapped: a segment is a group of whole tiles, whose atoms the program goes through in one sequence.

The tiles of a group may differ in length, since the threads share all atoms of the group. Groups may still be uneven.
"""

from __future__ import annotations

from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.schedules.program_mapped import blocks_of_tiles, whole_tiles

SCHEDULE = Schedule(whole_tiles, blocks_of_tiles, size=128, flat=True)
