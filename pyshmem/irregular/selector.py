"""Which schedule suits a matrix: a decision tree. Idea: Seer (arXiv 2403.17017).

Written by python -m benchmarks.seer --products 1000 from SpMV in float32 of 300 matrices on NVIDIA H200, 2026-11-23.
Of matrices that were held out: 1.08 times the time of the best schedule,
in the geometric mean, and 1.22 times as fast as the best single schedule.
"""

from __future__ import annotations


def schedule_for(rows: int, columns: int, atoms: int, mean: float, uneven: float, longest: int, empty: float) -> str:
    """The schedule for a matrix with these features. See pyshmem.irregular.features."""
    if uneven <= 6.254:
        if longest <= 314:
            if longest <= 21:
                if atoms <= 123344:
                    return "row_split"
                return "program_mapped"
            if uneven <= 1.053:
                return "program_mapped"
            return "row_blocks"
        if uneven <= 3.257:
            return "row_blocks"
        if columns <= 2405:
            return "row_blocks"
        return "nonzero_split"
    if longest <= 83645:
        if uneven <= 26.2:
            if mean <= 8.058:
                return "row_blocks"
            return "nonzero_split"
        return "nonzero_split"
    return "nonzero_split"
