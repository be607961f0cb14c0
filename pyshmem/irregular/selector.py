"""Which schedule suits a matrix: decision trees, in the two levels of Seer (arXiv 2403.17017).

Written by python -m benchmarks.seer --products 1000 from SpMV in float32 of 300 matrices on NVIDIA H200, 2026-11-23.
Of matrices that were held out: 1.08 times the time of the best schedule,
in the geometric mean, and 1.22 times as fast as the best single schedule.
"""

from __future__ import annotations


def gathers(rows: int, columns: int, atoms: int, mean: float) -> bool:
    """Whether a pass over the offsets is worth its time."""
    return True


def by_known(rows: int, columns: int, atoms: int, mean: float) -> str:
    """The schedule by what is known of a matrix."""
    if columns <= 171792:
        if mean <= 4:
            if mean <= 2.999:
                return "row_blocks"
            if columns <= 4267:
                return "row_blocks"
            return "nonzero_split"
        if mean <= 6.999:
            if mean <= 6.128:
                return "row_blocks"
            return "program_mapped"
        if mean <= 7.988:
            return "nonzero_split"
        return "row_blocks"
    if columns <= 341677:
        if mean <= 4.496:
            return "nonzero_split"
        if atoms <= 1679973:
            return "program_mapped"
        return "nonzero_split"
    if mean <= 2:
        return "row_blocks"
    return "nonzero_split"


def by_gathered(rows: int, columns: int, atoms: int, mean: float, uneven: float, longest: int, empty: float) -> str:
    """The schedule. uneven: the standard deviation of the lengths of rows, divided by their mean."""
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
