"""The shares of a matrix and its vectors that PEs own, and the segments of vectors that a PE needs from the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.irregular.matrix import CSR

Balanced = Literal["rows", "nonzeros"]
Fetch = Literal["needed", "whole"]


class Segment(NamedTuple):
    """``count`` elements of the share of ``pe``, from ``first`` on, which go to ``place`` of the local vector."""

    pe: int
    first: int
    place: int
    count: int


def starts_by_rows(matrix: CSR, n_pes: int) -> list[int]:
    """Return where the share of each PE begins, and where the last ends, balanced by rows."""
    return [matrix.rows * pe // n_pes for pe in range(n_pes + 1)]


def starts_by_nonzeros(matrix: CSR, n_pes: int) -> list[int]:
    """Return where the share of each PE begins, and where the last ends, balanced by non-zeros."""
    wanted = torch.tensor([matrix.atoms * pe // n_pes for pe in range(1, n_pes)], dtype=matrix.offsets.dtype)
    inner = torch.searchsorted(matrix.offsets, wanted.to(matrix.device)).tolist()
    return [0, *inner, matrix.rows]


CUTS = {"rows": starts_by_rows, "nonzeros": starts_by_nonzeros}


def divided(routine: str, matrix: CSR, cut: Balanced | Sequence[int]) -> tuple[CSR, list[int]]:
    """Return this PE's rows, of all columns, and where all shares begin and the last ends. cut: as in plan.

    Errors: ArgumentError unless the matrix is square in all and the cut fits.
    """
    n_pes, me = shmem.n_pes(), shmem.my_pe()
    if isinstance(cut, str):
        if cut not in CUTS:
            wants = " or ".join(map(repr, CUTS)) + " or the starts of all shares"
            refuse(ArgumentError, routine, "cut", repr(cut), wants)
        starts, end = CUTS[cut](matrix, n_pes), matrix.rows
        rows = matrix.between(starts[me], starts[me + 1])
    else:
        starts, rows = list(cut), matrix
        _check_starts(routine, starts, rows, n_pes, me)
        end = starts[-1]
    if rows.shape[1] != end:
        refuse(ArgumentError, routine, "matrix", f"{rows.shape[1]} columns and {end} rows in all", "a square matrix")
    return rows, starts


def _check_starts(routine: str, starts: list[int], rows: CSR, n_pes: int, me: int) -> None:
    if len(starts) != n_pes + 1 or starts[0] != 0 or starts != sorted(starts):
        refuse(ArgumentError, routine, "cut", str(starts), f"{n_pes + 1} rows that never fall, from 0 on")
    if starts[me + 1] - starts[me] != rows.rows:
        wants = f"{starts[me + 1] - starts[me]}, as cut says"
        refuse(ArgumentError, routine, "matrix", f"{rows.rows} rows", wants)


def needed_segments(columns: torch.Tensor, starts: list[int], me: int, gap: int) -> tuple[list[Segment], torch.Tensor]:
    """Return the segments of other PEs' shares with the elements ``columns``, and the columns renumbered.

    Segments with at most ``gap`` elements between them are one. Local elements keep their place in the share; fetched
    elements come after the largest share.
    """
    needed, number = torch.unique(columns.long(), return_inverse=True)
    bounds = torch.tensor(starts, device=columns.device)
    owners = torch.searchsorted(bounds, needed, right=True) - 1
    own = owners == me
    apart = (needed.diff() > gap + 1) | (owners.diff() != 0)
    segment_of = torch.nn.functional.pad(apart.cumsum(0), (1, 0))[: len(needed)]
    firsts = needed[torch.nn.functional.pad(apart, (1, 0), value=True)[: len(needed)]]
    lasts = needed[torch.nn.functional.pad(apart, (0, 1), value=True)[: len(needed)]]
    pes = torch.searchsorted(bounds, firsts, right=True) - 1
    counts = torch.where(pes == me, 0, lasts - firsts + 1)
    places = largest_share(starts) + counts.cumsum(0) - counts
    renumbered = torch.where(own, needed - starts[me], places[segment_of] + needed - firsts[segment_of])
    rows = zip(pes.tolist(), (firsts - bounds[pes]).tolist(), places.tolist(), counts.tolist(), strict=True)
    return [Segment(*row) for row in rows if row[0] != me], renumbered[number].to(columns.dtype)


def whole_shares(columns: torch.Tensor, starts: list[int], me: int, gap: int) -> tuple[list[Segment], torch.Tensor]:
    """Return the whole shares of all other PEs, and the columns renumbered, as needed_segments does."""
    everything = torch.arange(starts[-1], device=columns.device)
    segments, places = needed_segments(everything, starts, me, gap)
    return segments, places[columns.long()].to(columns.dtype)


FETCHES = {"needed": needed_segments, "whole": whole_shares}


def largest_share(starts: list[int]) -> int:
    """Return the number of elements of the largest share."""
    return max(end - start for start, end in pairwise(starts))
