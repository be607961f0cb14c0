"""By length: tiles of like length go side by side, in whichever order they lie, so that none waits for a longer one.

Windows of the matrix are sorted, not the whole of it: programs that run together then read neighbouring atoms, and share
what the caches hold. Tiles of more than ``size`` atoms are split. Ideas: the bins of Greathouse and Daga (SC 2014), and the
windows of SELL-C-sigma (Kreutzer et al., SISC 2014).
"""

from __future__ import annotations

from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.schedules.nonzero_split import at_equal_atoms, equal_atoms

SCHEDULE = Schedule(at_equal_atoms, equal_atoms, size=4096, flat=False, splits=True, of_atoms=True, order="length")
