"""The four products with their communication, and what each returns, in float64, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from pyshmem.host.teams import Team
from pyshmem.ops.gemm.plan import Plan, call
from pyshmem.ops.gemm.problem import Order, Schedule, Split, given
from pyshmem.ops.gradients import Gradient

Operands = Sequence[tuple[torch.Tensor, torch.Tensor]]  # (a, b) of all PEs of the team, in their order


def gemm_all_gather(
    a: torch.Tensor, b: torch.Tensor, split: Split = "rows", out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Schedule = "auto", order: Order = "auto", epilogue: Any = None, size: int | None = None,
    gradient: Gradient = "partial",
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the product of all PEs' rows, (M, N), on all PEs. ``split`` "rows": ``a`` is (M/n_pes, K), this PE's, b (K, N).

    split "columns": a is (M, K), b (K, N/n_pes) this PE's columns.  a, b: of one dtype, with contiguous rows or columns.
    out: symmetric, contiguous, (M, N), or None.  reuse: return one of the plan's two arrays in turn, which is overwritten by
        the next call but one, on the same stream; otherwise the result is the caller's.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: of the divided dimension where n_pes does not divide it.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends its block of the product to n_pes - 1 peers.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(schedule, order, epilogue, size, None, tile, out_dtype, use_fast_accum, gradient, scale_a, scale_b)
    return call("gemm_all_gather", a, b, out, team, plan, split, options, reuse)


def all_gather_gemm(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Literal["auto", "copy_engine", "fused", "producer_consumer", "bulk_synchronous"] = "auto",
    order: Order = "auto", epilogue: Any = None, size: int | None = None, columns: int | None = None,
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the rows of ``a`` of all PEs, (M, K), times this PE's columns ``b``, (K, N/n_pes): (M, N/n_pes).

    a: this PE's rows, (M/n_pes, K), not necessarily symmetric.  a, b: of one dtype, with contiguous rows or columns.
    out: contiguous, (M, N/n_pes), or None for a new tensor.  reuse: return one of the plan's two arrays in turn, which is
        overwritten by the next call but one, on the same stream.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: M, and columns, N, where n_pes does not divide them.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends its rows of a to n_pes - 1 peers.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(
        schedule, order, epilogue, size, columns, tile, out_dtype, use_fast_accum, "partial", scale_a, scale_b
    )
    return call("all_gather_gemm", a, b, out, team, plan, "rows", options, reuse)


def gemm_reduce_scatter(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Literal["auto", "copy_engine", "fused", "bulk_synchronous"] = "auto",
    order: Order = "auto", epilogue: Any = None, size: int | None = None,
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return this PE's rows, (M/n_pes, N), of the sum over all PEs of ``a`` @ ``b``. The first PEs have one row more.

    a: (M, K/n_pes).  b: (K/n_pes, N).  a, b: this PE's parts of K, of one dtype, with contiguous rows or columns.
    out: contiguous, of the result's shape, or None for a new tensor.  reuse: return one of the plan's two arrays in turn,
        which is overwritten by the next call but one, on the same stream.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: which is K where n_pes does not divide it.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends the rows of its product that others own, to their
        owners.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(schedule, order, epilogue, size, None, tile, out_dtype, use_fast_accum, "partial", scale_a, scale_b)
    return call("gemm_reduce_scatter", a, b, out, team, plan, "rows", options, reuse)


def gemm_all_reduce(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Literal["auto", "fused", "bulk_synchronous"] = "auto",
    order: Order = "auto", epilogue: Any = None, size: int | None = None, gradient: Gradient = "partial",
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the sum over all PEs of ``a`` @ ``b``, (M, N), on all PEs, with equal bits.

    a: (M, K/n_pes).  b: (K/n_pes, N).  a, b: this PE's parts of K, of one dtype, with contiguous rows or columns.
    out: symmetric, contiguous, (M, N), or None.  reuse: return one of the plan's two arrays in turn, which is overwritten by
        the next call but one, on the same stream; otherwise the result is the caller's.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: which is K where n_pes does not divide it.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends the rows of its product that others own, to their
        owners, and its rows of the sum to n_pes - 1 peers.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(schedule, order, epilogue, size, None, tile, out_dtype, use_fast_accum, gradient, scale_a, scale_b)
    return call("gemm_all_reduce", a, b, out, team, plan, "rows", options, reuse)


def _gemm_all_gather(operands: Operands, me: int, split: str = "rows") -> torch.Tensor:
    return torch.cat([a.double() @ b.double() for a, b in operands], dim=0 if split == "rows" else 1)


def _all_gather_gemm(operands: Operands, me: int) -> torch.Tensor:
    return torch.cat([a for a, _ in operands]).double() @ operands[me][1].double()


def _gemm_reduce_scatter(operands: Operands, me: int) -> torch.Tensor:
    a, b = torch.cat([a for a, _ in operands], 1), torch.cat([b for _, b in operands])
    return (a.double() @ b.double()).tensor_split(len(operands))[me]


def _gemm_all_reduce(operands: Operands, me: int) -> torch.Tensor:
    return torch.cat([a for a, _ in operands], 1).double() @ torch.cat([b for _, b in operands]).double()


# what PE ``me`` gets, by operator: functions of (operands, me)
REFERENCES = {
    "gemm_all_gather": _gemm_all_gather,
    "all_gather_gemm": _all_gather_gemm,
    "gemm_reduce_scatter": _gemm_reduce_scatter,
    "gemm_all_reduce": _gemm_all_reduce,
}
