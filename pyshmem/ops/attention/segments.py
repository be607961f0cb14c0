"""The segments into which a sequence is cut, and which of them each PE has."""

from __future__ import annotations

from typing import Literal

import torch

from pyshmem.ops.shares import share_of, start_of

Order = Literal["contiguous", "zigzag"]
ORDERS: dict[Order, int] = {"contiguous": 1, "zigzag": 2}  # segments of a PE


def segments_of(size: int, pe: int, n_pes: int, segments: int) -> list[tuple[int, int]]:
    """Return (first, last + 1) of each of the segments of the sequence that ``pe`` has, in its order."""
    count = n_pes * segments
    starts = [
        (start_of(size, each, count), share_of(size, each, count)) for each in (pe, 2 * n_pes - 1 - pe)[:segments]
    ]
    return [(start, start + length) for start, length in starts]


def tokens_at(size: int, pe: int, n_pes: int, segments: int) -> int:
    """Return how many tokens of a sequence ``pe`` has."""
    return sum(last - first for first, last in segments_of(size, pe, n_pes, segments))


def places_of(size: int, pe: int, n_pes: int, segments: int) -> torch.Tensor:
    """Return the places in the sequence of the tokens that ``pe`` has."""
    return torch.cat([torch.arange(*each) for each in segments_of(size, pe, n_pes, segments)])
