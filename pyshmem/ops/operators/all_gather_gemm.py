"""The product of rows gathered from all PEs.

Flops of a PE: 2 M N K / n_pes. Elements that it sends: its rows of a to n_pes - 1 peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pyshmem.host.teams import Team
from pyshmem.ops.plans import Plan, call


def all_gather_gemm(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Return the rows of ``a`` of all PEs, (M, K), times this PE's columns ``b``, (K, N/n_pes): (M, N/n_pes).

    a: this PE's rows, (M/n_pes, K), not necessarily symmetric.  a, b: of one dtype, with contiguous rows or columns.
    out: contiguous, (M, N/n_pes), or None for one of the plan's two arrays in turn.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    options: schedule and order, by name or "auto"; epilogue, a jit function of (tile, rows, columns) that returns the
        float32 tile to be stored; size, M, and columns, N, where n_pes does not divide them; tile, (BM, BN, BK).
        Of 8-bit floats also scale_a and scale_b, float32 of one element or (rows of a, 1) and (1, columns of b);
        out_dtype, bfloat16 unless given; use_fast_accum, as in torch._scaled_mm.
    Order: collective over team, on torch's current stream. A result that is not in out lives until the next call but one.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    return call("all_gather_gemm", a, b, out, team, plan, "rows", options)


def reference(operands: Sequence[tuple[torch.Tensor, torch.Tensor]], me: int) -> torch.Tensor:
    """Return in float64 what PE ``me`` gets. operands: (a, b) of all PEs of the team, in their order."""
    return torch.cat([a for a, _ in operands]).double() @ operands[me][1].double()
