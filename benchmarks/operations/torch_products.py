"""torch's ways to the operators' results: the library's product and NCCL in turn, and the fused ones of symmetric memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.operations.rivals import Rivals

Way = tuple[str, Callable[[], object], torch.Tensor]  # statement, step, result


def after_gemm(rivals: Rivals, problem: Any) -> Way:
    """The product and the collective on one stream, in the order that the operator needs."""
    statement, step, result = _AFTER[problem.operator, problem.split](rivals.dist, len(problem.every), problem)
    return statement.replace("matmul", "_scaled_mm") if problem.scales else statement, step, result


def at_once(rivals: Rivals, problem: Any) -> Way | str:
    """The fused operators of torch's symmetric memory, or the reason why there is none."""
    if problem.operator not in _AT_ONCE:
        return "torch has no such operator"
    rivals.symmetric_memory.enable_symm_mem_for_group(rivals.name)
    ways = _SCALED_AT_ONCE if problem.scales else _AT_ONCE
    return ways[problem.operator](rivals.name, problem.a, problem.b, *problem.scales)


def _empty(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Return an uninitialised tensor of the type of results."""
    return torch.empty(shape, dtype=torch.bfloat16, device=like.device)


def _gather_rows(dist: Any, n: int, problem: Any) -> Way:
    a, b = problem.a, problem.b
    own, whole = _empty(a, a.shape[0], b.shape[1]), _empty(a, n * a.shape[0], b.shape[1])

    def step() -> None:
        problem.multiply(a, b, own)
        dist.all_gather_into_tensor(whole, own)

    return "matmul; all_gather_into_tensor", step, whole


def _gather_columns(dist: Any, n: int, problem: Any) -> Way:
    """NCCL gathers whole blocks, so another pass puts them side by side."""
    a, b = problem.a, problem.b
    (rows, _), width = a.shape, b.shape[1]
    own, blocks, whole = _empty(a, rows, width), _empty(a, n * rows, width), _empty(a, rows, n * width)

    def step() -> None:
        problem.multiply(a, b, own)
        dist.all_gather_into_tensor(blocks, own)
        whole.view(rows, n, width).copy_(blocks.view(n, rows, width).transpose(0, 1))

    return "matmul; all_gather_into_tensor; copy_", step, whole


def _multiply_gathered(dist: Any, n: int, problem: Any) -> Way:
    a, b = problem.a, problem.b
    whole, out = a.new_empty(n * a.shape[0], a.shape[1]), _empty(a, n * a.shape[0], b.shape[1])

    def step() -> None:
        dist.all_gather_into_tensor(whole.view(torch.uint8), a.view(torch.uint8))
        problem.multiply(whole, b, out)

    return "all_gather_into_tensor; matmul", step, out


def _reduce_scatter(dist: Any, n: int, problem: Any) -> Way:
    a, b = problem.a, problem.b
    part, out = _empty(a, a.shape[0], b.shape[1]), _empty(a, a.shape[0] // n, b.shape[1])

    def step() -> None:
        problem.multiply(a, b, part)
        dist.reduce_scatter_tensor(out, part)

    return "matmul; reduce_scatter_tensor", step, out


def _all_reduce(dist: Any, n: int, problem: Any) -> Way:
    a, b = problem.a, problem.b
    out = _empty(a, a.shape[0], b.shape[1])

    def step() -> None:
        problem.multiply(a, b, out)
        dist.all_reduce(out)

    return "matmul; all_reduce", step, out


_AFTER = {
    ("gemm_all_gather", "rows"): _gather_rows,
    ("gemm_all_gather", "columns"): _gather_columns,
    ("all_gather_gemm", "rows"): _multiply_gathered,
    ("gemm_reduce_scatter", "rows"): _reduce_scatter,
    ("gemm_all_reduce", "rows"): _all_reduce,
}


def _async_gather(group: str, a: torch.Tensor, b: torch.Tensor) -> Way:
    """These return a new tensor each time."""
    multiply = torch.ops.symm_mem.fused_all_gather_matmul
    return "fused_all_gather_matmul", lambda: multiply(a, [b], 0, group)[1][0], _empty(a, 0)


def _async_scatter(group: str, a: torch.Tensor, b: torch.Tensor) -> Way:
    multiply = torch.ops.symm_mem.fused_matmul_reduce_scatter
    return "fused_matmul_reduce_scatter", lambda: multiply(a, b, "sum", 0, group), _empty(a, 0)


_AT_ONCE = {"all_gather_gemm": _async_gather, "gemm_reduce_scatter": _async_scatter}


def _async_scaled_gather(
    group: str, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> Way:
    multiply, result = torch.ops.symm_mem.fused_all_gather_scaled_matmul, torch.bfloat16

    def step() -> torch.Tensor:
        return multiply(a, [b], scale_a, [scale_b], 0, group, [None], [None], [result], [False])[1][0]

    return "fused_all_gather_scaled_matmul", step, _empty(a, 0)


def _async_scaled_scatter(
    group: str, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> Way:
    multiply, shape = torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter, [a.shape[0], b.shape[1]]

    def step() -> torch.Tensor:
        return multiply(a, b, scale_a, scale_b, "sum", 0, 0, group, shape, out_dtype=torch.bfloat16)

    return "fused_scaled_matmul_reduce_scatter", step, _empty(a, 0)


_SCALED_AT_ONCE = {"all_gather_gemm": _async_scaled_gather, "gemm_reduce_scatter": _async_scaled_scatter}
