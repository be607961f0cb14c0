"""The sum of products over all PEs, of which each PE gets its rows.

Flops of a PE: 2 M N K / n_pes. Elements that it sends: the rows of its product that others own, to their owners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pyshmem.host.teams import Team
from pyshmem.ops.plans import Plan, call


def gemm_reduce_scatter(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Return this PE's rows, (M/n_pes, N), of the sum over all PEs of ``a`` @ ``b``. The first PEs have one row more.

    a: (M, K/n_pes).  b: (K/n_pes, N).  a, b: this PE's parts of K, of one dtype, with contiguous rows or columns.
    out: contiguous, of the result's shape, or None for one of the plan's two arrays in turn.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    options: schedule and order, by name or "auto"; epilogue, a jit function of (tile, rows, columns) that returns the
        float32 tile to be stored; size, which is K where n_pes does not divide it; tile, (BM, BN, BK).
        Of 8-bit floats also scale_a and scale_b, float32 of one element or (rows of a, 1) and (1, columns of b);
        out_dtype, bfloat16 unless given; use_fast_accum, as in torch._scaled_mm.
    Order: collective over team, on torch's current stream. A result that is not in out lives until the next call but one.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    return call("gemm_reduce_scatter", a, b, out, team, plan, "rows", options)


def reference(operands: Sequence[tuple[torch.Tensor, torch.Tensor]], me: int) -> torch.Tensor:
    """Return in float64 what PE ``me`` gets. operands: (a, b) of all PEs of the team, in their order."""
    a, b = torch.cat([a for a, _ in operands], 1), torch.cat([b for _, b in operands])
    return (a.double() @ b.double()).tensor_split(len(operands))[me]
