"""Values in registers as words of 32 bits, which travel with a mark beside each; and how two values become one."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch import jit


@triton.constexpr_function
def bits_of(element: tl.dtype) -> tl.dtype:
    """The integer type of the same size."""
    return {8: tl.int8, 16: tl.int16, 32: tl.int32, 64: tl.int64}[element.primitive_bitwidth]


@triton.constexpr_function
def together(element: tl.dtype) -> int:
    """How many elements are 16 bytes, what one access moves: of parts that are whole numbers of them the compiler knows."""
    return max(128 // element.primitive_bitwidth, 1)


@triton.constexpr_function
def summed_in(element: tl.dtype) -> tl.dtype:
    """The type in which elements are combined: half types in float32."""
    return tl.float32 if element.is_floating() and element.primitive_bitwidth < 32 else element


@jit
def to_words(flat: tl.tensor) -> tl.tensor:
    """The bits of a block of one dimension, as int32: 16 bits share a word with the next ones, fewer have one each."""
    count: tl.constexpr = flat.shape[0]
    bits = flat.to(bits_of(flat.dtype), bitcast=True)
    if flat.dtype.primitive_bitwidth == 32:
        return bits
    elif flat.dtype.primitive_bitwidth == 64:
        return tl.reshape(tl.join(bits.to(tl.int32), (bits >> 32).to(tl.int32)), [2 * count])
    elif flat.dtype.primitive_bitwidth == 16 and count > 1:
        low, high = tl.split(tl.reshape(bits, [count // 2, 2]))
        return (low.to(tl.int32) & 0xFFFF) | (high.to(tl.int32) << 16)
    else:
        return bits.to(tl.int32)


@jit
def from_words(words: tl.tensor, element: tl.constexpr, count: tl.constexpr) -> tl.tensor:
    """The block of ``count`` elements that to_words made them of."""
    if element.primitive_bitwidth == 32:
        bits = words
    elif element.primitive_bitwidth == 64:
        low, high = tl.split(tl.reshape(words, [count, 2]))
        bits = (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)
    elif element.primitive_bitwidth == 16 and count > 1:
        bits = tl.reshape(tl.join(words.to(tl.int16), (words >> 16).to(tl.int16)), [count])
    else:
        bits = words.to(bits_of(element))
    return bits.to(element, bitcast=True)


@jit
def combine(op: tl.constexpr, one: tl.tensor, other: tl.tensor) -> tl.tensor:
    """sum, prod, min, max, and, or, xor of two; NaN in either is NaN in min and max."""
    if op == "sum":
        return one + other
    elif op == "prod":
        return one * other
    elif op == "min":
        return tl.minimum(one, other, propagate_nan=tl.PropagateNan.ALL)
    elif op == "max":
        return tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)
    elif op == "and":
        return one & other
    elif op == "or":
        return one | other
    else:
        return one ^ other
