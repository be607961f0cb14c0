"""Which schedule suits a matrix: decision trees, in the two levels of Seer (arXiv 2403.17017).

Written by python -m benchmarks.seer --products 1000 from SpMV in float32 of 300 matrices on NVIDIA H200, 2026-11-22.
Of matrices that were held out: 1.12 times the time of the best schedule,
in the geometric mean, and 1.53 times as fast as the best single schedule.
"""

from __future__ import annotations


def gathers(rows: int, columns: int, atoms: int, mean: float) -> bool:
    """Whether a pass over the offsets is worth its time."""
    if columns <= 15859:
        if mean <= 5.998:
            return True
        if columns <= 2975:
            if atoms <= 2749:
                return True
            return False
        return True
    return True


def by_known(rows: int, columns: int, atoms: int, mean: float) -> str:
    """The schedule by what is known of a matrix."""
    if mean <= 6.999:
        if columns <= 112776:
            if mean <= 4.684:
                if mean <= 2.874:
                    return "program_mapped"
                return "dynamic"
            return "program_mapped"
        if mean <= 4:
            if mean <= 2.884:
                return "group_mapped"
            return "merge_path"
        if rows <= 143783:
            return "merge_path"
        return "program_mapped"
    if columns <= 29053:
        return "program_mapped"
    if mean <= 10.5:
        return "merge_path"
    if columns <= 33695:
        return "merge_path"
    return "program_mapped"


def by_gathered(rows: int, columns: int, atoms: int, mean: float, uneven: float, longest: int, empty: float) -> str:
    """The schedule. uneven: the standard deviation of the lengths of rows, divided by their mean."""
    if longest <= 3330:
        if longest <= 26:
            return "program_mapped"
        if mean <= 9.116:
            if longest <= 245:
                return "group_mapped"
            return "dynamic"
        if longest <= 248:
            return "program_mapped"
        return "merge_path"
    return "merge_path"
