"""Which schedule suits a matrix: decision trees, in the two levels of Seer (arXiv 2403.17017).

Written by python -m benchmarks.seer --products 1000 from SpMV in float32 of 99 matrices on NVIDIA H200, 2026-11-23.
Of matrices that were held out: 1.06 times the time of the best schedule,
in the geometric mean, and 1.44 times as fast as the best single schedule.
"""

from __future__ import annotations


def gathers(rows: int, columns: int, atoms: int, mean: float) -> bool:
    """Whether a pass over the offsets is worth its time."""
    if columns <= 428:
        if columns <= 134:
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
        if columns <= 15859:
            return "program_mapped"
        return "nonzero_split"
    if rows <= 383356:
        return "nonzero_split"
    if atoms <= 1503524:
        return "row_blocks"
    return "nonzero_split"


def by_gathered(rows: int, columns: int, atoms: int, mean: float, uneven: float, longest: int, empty: float) -> str:
    """The schedule. uneven: the standard deviation of the lengths of rows, divided by their mean."""
    if longest <= 679:
        if empty <= 0.1344:
            if longest <= 8:
                if columns <= 76156:
                    return "row_split"
                return "program_mapped"
            if mean <= 19.99:
                return "row_split"
            return "program_mapped"
        if rows <= 1513:
            return "nonzero_split"
        return "row_blocks"
    return "nonzero_split"
