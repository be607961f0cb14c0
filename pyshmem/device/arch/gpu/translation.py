"""Translation of this PE's addresses to a peer's: by one stride, or by a table of distances if ctx.by_table is set."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu.values import decoded, decoded_distance


@triton.jit
def distance(ctx, pe, mask=None):
    """Return the bytes from an address in this PE's heap to the same place on ``pe``, a multiple of the page size."""
    if ctx.by_table:
        deltas = ctx.table.to(tl.pointer_type(tl.int64)) + decoded(ctx.start)
        return tl.load(deltas + pe * decoded(ctx.step), mask=mask)
    else:
        return (pe - decoded(ctx.me)).to(tl.int64) * decoded_distance(ctx.stride)


@triton.jit
def translate(ctx, pointers, pe):
    """Translate pointers to ``pe``, a scalar or a block that broadcasts against them."""
    element: tl.constexpr = pointers.dtype.element_ty
    # The addition uses another type of the same size: AMD's compiler assumes that an array has less than 2 GiB and truncates
    # offsets from its address to 32 bits, as offsets into a buffer. It assumes nothing about a pointer that was cast.
    others = pointers.to(tl.pointer_type(other_type(element)), bitcast=True)
    # in elements: with bytes, Triton would not recognise contiguous accesses
    shift: tl.constexpr = element_shift(element)
    far = distance(ctx, pe)
    # A hint, or for blocks a product: Triton fails to compile a hint on a block of equal numbers.
    away = tl.multiple_of(far >> shift, 16) if is_scalar(pe) else (far >> (shift + 4)) * 16
    return (others + away).to(tl.pointer_type(element), bitcast=True)


@triton.constexpr_function
def is_scalar(value: tl.tensor) -> bool:
    return not isinstance(value, tl.tensor) or not value.type.is_block()


@triton.constexpr_function
def element_shift(element: tl.dtype) -> int:
    """Return the binary logarithm of an element's size in bytes."""
    return max(element.primitive_bitwidth // 8, 1).bit_length() - 1


@triton.constexpr_function
def other_type(element: tl.dtype) -> tl.dtype:
    """Return another type of the same size."""
    numbers = {8: tl.float8e5, 16: tl.float16, 32: tl.float32, 64: tl.float64}
    integers = {1: tl.int8, 8: tl.int8, 16: tl.int16, 32: tl.int32, 64: tl.int64}
    bits = element.primitive_bitwidth
    return numbers[bits] if element.is_int() and bits > 1 else integers[bits]
