"""Shares of a dimension: PE i of n has size // n elements, and the first size % n PEs have one more."""

from __future__ import annotations

import triton
import triton.language as tl


def start_of(size: int, pe: int, n_pes: int) -> int:
    """Return where the share of ``pe`` begins. That of n_pes is the end."""
    return pe * (size // n_pes) + min(pe, size % n_pes)


def share_of(size: int, pe: int, n_pes: int) -> int:
    """Return the number of elements in the share of ``pe``."""
    return size // n_pes + (pe < size % n_pes)


@triton.jit
def share_start(size, pe, n_pes):
    """start_of, in kernels."""
    return pe * (size // n_pes) + min(pe, size % n_pes)


@triton.jit
def share_size(size, pe, n_pes):
    """share_of, in kernels."""
    return size // n_pes + tl.where(pe < size % n_pes, 1, 0)
