"""Which schedule suits a matrix: a decision tree. Idea: Seer (arXiv 2403.17017).

Of fewer than 900,000 non-zeros: written by python -m benchmarks.seer --products 1000 from SpMV in float32 of 104 matrices on
NVIDIA H100 80GB HBM3, 2026-11-24. Of matrices that were held out: 1.14 times the time of the best schedule, in the geometric
mean, and 1.03 times as fast as the best single schedule.
Of more: chosen from SpMV in float32 of 51 matrices of 17 families on NVIDIA H200, 2026-11-27. Of families that were held out:
1.02 times the time of the best schedule, at worst 1.25, and 1.07 times as fast as the best single schedule.
"""

from __future__ import annotations


def schedule_for(rows: int, columns: int, atoms: int, mean: float, uneven: float, longest: int, empty: float) -> str:
    """The schedule for a matrix with these features. See pyshmem.irregular.features."""
    if atoms >= 900_000:
        if longest <= 24:
            return "program_mapped"
        return "by_length"
    if longest <= 3344:
        if longest <= 265:
            if longest <= 32:
                return "program_mapped"
            return "by_length"
        return "row_blocks"
    return "nonzero_split"
