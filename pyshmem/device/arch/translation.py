"""From this PE's addresses to a peer's: at one stride, or by a table of distances. ctx.by_table says which."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def distance(ctx: tl.tensor, pe: tl.tensor, mask: tl.tensor = None) -> tl.tensor:
    """Bytes from an address in this PE's heap to the same place on ``pe``: whole pages."""
    if ctx.by_table:
        deltas = ctx.table.to(tl.pointer_type(tl.int64)) + (ctx.start - 3) // 2
        return tl.multiple_of(tl.load(deltas + pe * ctx.step, mask=mask), 16)
    else:
        return (pe - (ctx.me - 3) // 2).to(tl.int64) * ctx.stride


@triton.jit
def translate(ctx: tl.tensor, pointers: tl.tensor, pe: tl.tensor) -> tl.tensor:
    """The pointers' places on ``pe``, a scalar or a block that broadcasts against them."""
    shift: tl.constexpr = element_shift(pointers.dtype.element_ty)
    return pointers + tl.multiple_of(distance(ctx, pe) >> shift, 16)  # in elements: bytes would hide what is contiguous


@triton.constexpr_function
def element_shift(element: tl.dtype) -> int:
    """The binary logarithm of an element's bytes."""
    return max(element.primitive_bitwidth // 8, 1).bit_length() - 1
