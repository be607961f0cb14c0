"""A histogram of degrees: how many rows have 0, 1, 2, ... non-zeros, counted by integer atomics, so exactly."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.irregular.execution import Work, run
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.schedules import Name


class Operands(NamedTuple):
    """The counters."""

    counts: torch.Tensor
    most: int


@triton.jit
def one(operands, atoms, lanes, mask):
    """Each non-zero counts."""
    return tl.where(mask, 1, 0)


@triton.jit
def count(operands, tiles, lanes, sums, mask):
    """Count rows by their sums."""
    tl.atomic_add(operands.counts + tl.minimum(sums, operands.most), 1, mask=mask, sem="relaxed")


def degree_histogram(matrix: CSR, bins: int, schedule: Name = "auto", size: int | None = None) -> torch.Tensor:
    """Return int32 counts of the rows of ``matrix`` by their stored elements; the last of ``bins`` has all longer rows.

    schedule: "auto", or a name in SCHEDULES.  size: rows of more elements are split; None is the schedule's own.
    Order: on torch's current stream.
    Errors: ArgumentError.
    Spec: none.
    """
    if bins < 1:
        refuse(ArgumentError, "degree_histogram", "bins", str(bins), "at least 1")
    counts = torch.zeros(bins, dtype=torch.int32, device=matrix.device)
    run(Work(one, count, Operands(counts, bins - 1), dtype=torch.int32), matrix, schedule, size)
    return counts
