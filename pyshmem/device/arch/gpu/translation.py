"""From this PE's addresses to a peer's: at one stride, or by a table of distances. ctx.by_table says which."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu.values import decoded, decoded_distance


@triton.jit
def distance(ctx, pe, mask=None):
    """Bytes from an address in this PE's heap to the same place on ``pe``: whole pages."""
    if ctx.by_table:
        deltas = ctx.table.to(tl.pointer_type(tl.int64)) + decoded(ctx.start)
        return tl.load(deltas + pe * decoded(ctx.step), mask=mask)
    else:
        return (pe - decoded(ctx.me)).to(tl.int64) * decoded_distance(ctx.stride)


@triton.jit
def translate(ctx, pointers, pe):
    """The pointers' places on ``pe``, a scalar or a block that broadcasts against them."""
    element: tl.constexpr = pointers.dtype.element_ty
    # Of another type of that size meanwhile: AMD's compiler knows that an array has under 2 GiB, so it takes what is added
    # to its address in 32 bits, as an offset into a buffer that ends there. It knows nothing of what was cast.
    others = pointers.to(tl.pointer_type(other_type(element)), bitcast=True)
    shift: tl.constexpr = element_shift(element)  # in elements: bytes would hide what is contiguous
    far = distance(ctx, pe)
    # A hint, or for blocks a product: where all of a block is one number, Triton fails to compile a hint on it.
    away = tl.multiple_of(far >> shift, 16) if is_scalar(pe) else (far >> (shift + 4)) * 16
    return (others + away).to(tl.pointer_type(element), bitcast=True)


@triton.constexpr_function
def is_scalar(value: tl.tensor) -> bool:
    return not isinstance(value, tl.tensor) or not value.type.is_block()


@triton.constexpr_function
def element_shift(element: tl.dtype) -> int:
    """The binary logarithm of an element's bytes."""
    return max(element.primitive_bitwidth // 8, 1).bit_length() - 1


@triton.constexpr_function
def other_type(element: tl.dtype) -> tl.dtype:
    """Another type of an element's size."""
    numbers = {8: tl.float8e5, 16: tl.float16, 32: tl.float32, 64: tl.float64}
    integers = {1: tl.int8, 8: tl.int8, 16: tl.int16, 32: tl.int32, 64: tl.int64}
    bits = element.primitive_bitwidth
    return numbers[bits] if element.is_int() and bits > 1 else integers[bits]
