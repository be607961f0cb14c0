"""The sum of products over all PEs, whole on all PEs.

Flops of a PE: 2 M N K / n_pes. Elements that it sends: the rows of its product that others own, to their owners, and its
rows of the sum to n_pes - 1 peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pyshmem.host.teams import Team
from pyshmem.ops.plans import Plan, call


def gemm_all_reduce(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Return the sum over all PEs of ``a`` @ ``b``, (M, N), on all PEs, with equal bits.

    a: (M, K/n_pes).  b: (K/n_pes, N).  a, b: this PE's parts of K, of one dtype, with contiguous rows or columns.
    out: symmetric, contiguous, (M, N), or None for one of the plan's two arrays in turn.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    options: schedule and order, by name or "auto"; epilogue, a jit function of (tile, rows, columns) that returns the
        float32 tile to be stored; size, which is K where n_pes does not divide it; tile, (BM, BN, BK).
        Of 8-bit floats also scale_a and scale_b, float32 of one element or (rows of a, 1) and (1, columns of b);
        out_dtype, bfloat16 unless given; use_fast_accum, as in torch._scaled_mm.
    Order: collective over team, on torch's current stream. A result that is not in out lives until the next call but one.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    return call("gemm_all_reduce", a, b, out, team, plan, "rows", options)


def reference(operands: Sequence[tuple[torch.Tensor, torch.Tensor]], me: int) -> torch.Tensor:
    """Return in float64 what PE ``me`` gets. operands: (a, b) of all PEs of the team, in their order; all get the same."""
    return torch.cat([a for a, _ in operands], 1).double() @ torch.cat([b for _, b in operands]).double()
