"""Scales of products of 8-bit floats: one for each operand, or one for each row of a and each column of b.

Each PE has its own. They multiply the float32 sum of a tile before it is rounded, so what PEs send and add up is scaled.
The two forms are those of torch._scaled_mm.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.base.errors import ArgumentError, DtypeError, refuse
from pyshmem.memory.heap import default

NONE, WHOLE, LINES = "no scales", "one scale", "scales of rows and columns"
Scales = tuple[torch.Tensor, ...]  # empty, or those of a and of b


def taken(options: dict[str, Any]) -> Scales:
    """Take the scales out of a call's keyword arguments."""
    if "scale_a" not in options and "scale_b" not in options:
        return ()
    found = options.pop("scale_a", None), options.pop("scale_b", None)
    return () if found == (None, None) else found


def form_of(operator: str, a: torch.Tensor, b: torch.Tensor, scales: Scales) -> str:
    """Return the form of the scales of a and b. Errors: ArgumentError, DtypeError."""
    eight = a.dtype.itemsize == 1
    if not eight and scales:
        refuse(ArgumentError, operator, "scale_a", f"one for {a.dtype}", "None: scales are for floats of 8 bits")
    if not eight:
        return NONE
    shapes = {"scale_a": (a.shape[0], 1), "scale_b": (1, b.shape[1])}
    given = list(zip(shapes.items(), scales or (None, None), strict=True))
    for (name, shape), scale in given:
        if not isinstance(scale, torch.Tensor):
            wants = f"a float32 tensor of one element, or of shape {shape}"
            refuse(ArgumentError, operator, name, type(scale).__name__, wants)
    whole = are_whole(a, b, scales)
    for (name, shape), scale in given:
        wants = f"a float32 tensor of one element, as that of the other operand, or of shape {shape}"
        if scale.dtype is not torch.float32:
            refuse(DtypeError, operator, name, str(scale.dtype), wants)
        if not whole and tuple(scale.shape) != shape:
            refuse(ArgumentError, operator, name, f"shape {tuple(scale.shape)}", wants)
        if scale.device.type != default().device:
            refuse(ArgumentError, operator, name, f"a tensor on {scale.device}", f"one on {default().device}")
        if scale.data_ptr() % 16:
            refuse(ArgumentError, operator, name, f"the address {scale.data_ptr():#x}", "a multiple of 16: clone() it")
        if not scale.is_contiguous():
            refuse(ArgumentError, operator, name, f"strides {scale.stride()}", "a contiguous tensor")
    return WHOLE if whole else LINES


def are_whole(a: torch.Tensor, b: Any, scales: Scales) -> bool:
    """Whether both scales are of whole operands, one element each.

    Where a has one row and b one column, those of shape (1, 1) are of rows and columns, as those of peers with more are.
    """
    if not all(isinstance(each, torch.Tensor) and each.numel() == 1 for each in scales):
        return False
    single = len(a) == 1 and isinstance(b, torch.Tensor) and b.shape[1:] == (1,)
    return not (single and all(each.dim() == 2 for each in scales))


def of_rows(scales: Scales, first: int, last: int) -> Scales:
    """Return the scales of the product of rows first to last - 1 of a, where libraries take them: at multiples of 16."""
    if not scales or scales[0].numel() == 1:
        return scales
    rows = scales[0][first:last]
    return rows.clone() if rows.data_ptr() % 16 else rows, scales[1]


def gathered_scales(problem: Any) -> dict[str, tuple[tuple[int, int], torch.dtype]]:
    """Return what the workspace of all_gather_gemm must have for the scales of all PEs' rows: a line for each PE."""
    n = problem.n_pes
    longest = {WHOLE: 1, LINES: -(-problem.M // n)}
    return {} if problem.scaling == NONE else {"scales": ((n, -(-longest[problem.scaling] // 4) * 4), torch.float32)}


@triton.jit
def scales_of(scales, M, n, pe, EACH: tl.constexpr):
    """Return where the gathered scales of the rows of a PE are. Libraries take addresses of 16 bytes."""
    return scales + pe * (tl.cdiv(tl.cdiv(M, n), 4) * 4 if EACH else 4)


def parameters(form: str) -> dict[str, Any]:
    """Return the constants that a kernel has in the place of its scales, if there are none."""
    return {"scale_a": None, "scale_b": None} if form == NONE else {}


def samples(form: str, like: torch.Tensor) -> Scales:
    """Return arrays to compile a kernel for."""
    return () if form == NONE else tuple(like.new_empty(1, dtype=torch.float32) for _ in range(2))


@triton.jit
def scaled(tile, scale_a, scale_b, row, column, height, width, BM: tl.constexpr, BN: tl.constexpr, EACH: tl.constexpr):
    """Return a tile times its scales. The product has ``height`` rows and ``width`` columns from (row, column) on.

    EACH: every row of a and column of b has a scale; otherwise every operand.
    """
    if scale_a is None:
        return tile
    elif EACH:
        r, q = tl.arange(0, BM), tl.arange(0, BN)
        down = tl.load(scale_a + row + r, mask=r < height, other=0.0)
        across = tl.load(scale_b + column + q, mask=q < width, other=0.0)
        return tile * down[:, None] * across[None, :]
    else:
        return tile * (tl.load(scale_a) * tl.load(scale_b))
