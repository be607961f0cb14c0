"""Which schedule suits a matrix: decision trees, in the two levels of Seer (arXiv 2403.17017).

Written by python -m benchmarks.seer --products 1000 from SpMV in float32 of 100 matrices on NVIDIA H200, 2026-11-22.
Of matrices that were held out: 1.07 times the time of the best schedule,
in the geometric mean, and 1.47 times as fast as the best single schedule.
"""

from __future__ import annotations


def gathers(rows: int, columns: int, atoms: int, mean: float) -> bool:
    """Whether a pass over the offsets is worth its time."""
    if atoms <= 17937:
        if mean <= 2.723:
            return True
        if rows <= 220:
            return False
        return True
    return True


def by_known(rows: int, columns: int, atoms: int, mean: float) -> str:
    """The schedule by what is known of a matrix."""
    if columns <= 258801:
        if atoms <= 11731:
            if mean <= 2.709:
                return "group_mapped"
            if mean <= 7.406:
                return "row_split"
            return "program_mapped"
        if atoms <= 34618:
            return "nonzero_split"
        if mean <= 4:
            return "group_mapped"
        return "nonzero_split"
    if rows <= 383356:
        return "nonzero_split"
    if atoms <= 1503524:
        return "row_split"
    return "nonzero_split"


def by_gathered(rows: int, columns: int, atoms: int, mean: float, uneven: float, longest: int, empty: float) -> str:
    """The schedule. uneven: the standard deviation of the lengths of rows, divided by their mean."""
    if longest <= 1749:
        if uneven <= 1.121:
            if mean <= 20.44:
                if columns <= 144108:
                    return "row_split"
                return "program_mapped"
            return "program_mapped"
        if longest <= 189:
            return "group_mapped"
        return "nonzero_split"
    return "nonzero_split"
