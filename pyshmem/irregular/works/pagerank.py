"""A step of PageRank: each vertex gets a fraction of the ranks of those that link to it, and a base rank."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.irregular.execution import Work, run
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.schedules import Name
from pyshmem.irregular.works import require_dense, sums_of, wide


class Operands(NamedTuple):
    """shares: the rank that a vertex gives along each of its links.  base: the base rank, and the damping."""

    columns: torch.Tensor
    shares: torch.Tensor
    base: torch.Tensor
    ranks: torch.Tensor


@triton.jit
def share(operands, atoms, lanes, mask, near):
    """What a link brings."""
    return wide(tl.load(operands.shares + tl.load(operands.columns + atoms, mask=near, other=0), mask=mask))


@triton.jit
def rank(operands, tiles, lanes, sums, mask):
    """Store the new ranks."""
    new = wide(tl.load(operands.base)) + wide(tl.load(operands.base + 1)) * sums
    tl.store(operands.ranks + tiles + lanes, new.to(operands.ranks.dtype.element_ty), mask=mask)


def pagerank_step(
    links: CSR, ranks: torch.Tensor, degrees: torch.Tensor, damping: float = 0.85,
    schedule: Name = "auto", size: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return the ranks after one step. Row i of ``links``, square, has an element for each link to i; values are ignored.

    ranks: sum 1, of the matrix's dtype.  degrees: the number of links from each vertex, in the same dtype. The rank of a
        vertex with degree 0 is spread over all vertices.  damping: the fraction of a rank that goes along links.
    schedule: "auto", or a name in SCHEDULES.  size: rows of more elements are split; None is the schedule's own.
    Order: on torch's current stream. The same bits in every run.
    Errors: ArgumentError.
    Spec: none.
    """
    n = links.rows
    if links.shape != (n, n):
        refuse(ArgumentError, "pagerank_step", "links", f"a matrix of shape {links.shape}", "a square one")
    require_dense("pagerank_step", "ranks", ranks, links, n, 1)
    require_dense("pagerank_step", "degrees", degrees, links, n, 1)
    lost = torch.where(degrees == 0, ranks, 0).sum()
    base = torch.stack([((1 - damping) + damping * lost) / max(n, 1), torch.full_like(lost, damping)])
    operands = Operands(links.columns, ranks / degrees.clamp(min=1), base, torch.empty_like(ranks))
    run(Work(share, rank, operands, dtype=sums_of(ranks.dtype)), links, schedule, size)
    return operands.ranks
