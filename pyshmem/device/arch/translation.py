"""From this PE's addresses to a peer's: at one stride, or by a table of distances. ctx.by_table says which."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def distance(ctx: tl.tensor, pe: tl.tensor, mask: tl.tensor = None) -> tl.tensor:
    """Bytes from an address in this PE's heap to the same place on ``pe``."""
    if ctx.by_table:
        deltas = ctx.table.to(tl.pointer_type(tl.int64)) + (ctx.start - 3) // 2
        return tl.multiple_of(tl.load(deltas + pe * ctx.step, mask=mask), 16)  # heaps begin at whole pages
    else:
        return (pe - (ctx.me - 3) // 2).to(tl.int64) * ctx.stride


@triton.jit
def translate(ctx: tl.tensor, pointers: tl.tensor, pe: tl.tensor) -> tl.tensor:
    """The pointers' places on ``pe``, a scalar or a block that broadcasts against them."""
    octets = pointers.to(tl.pointer_type(tl.int8), bitcast=True) + distance(ctx, pe)
    return octets.to(tl.pointer_type(pointers.dtype.element_ty), bitcast=True)
