"""Which schedule suits a matrix: a decision tree. Idea: Seer (arXiv 2403.17017).

Written by python -m benchmarks.seer --products 1000 from SpMV in float32 of 104 matrices on NVIDIA H100 80GB HBM3, 2026-11-24.
Of matrices that were held out: 1.14 times the time of the best schedule,
in the geometric mean, and 1.03 times as fast as the best single schedule.
"""

from __future__ import annotations


def schedule_for(rows: int, columns: int, atoms: int, mean: float, uneven: float, longest: int, empty: float) -> str:
    """The schedule for a matrix with these features. See pyshmem.irregular.features."""
    if longest <= 3344:
        if longest <= 265:
            if longest <= 32:
                return "program_mapped"
            return "by_length"
        return "row_blocks"
    return "nonzero_split"
