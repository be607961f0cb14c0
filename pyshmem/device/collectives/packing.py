"""Packing of values in registers into words of 32 bits, which are sent with marks, and the operators on two values.

A lane is the unit that one thread sends: two elements of 16 bits, or one of another size. It is an int32, or an int64 that
is sent as two words.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit


@triton.constexpr_function
def shared_by(count: int, element: tl.dtype) -> int:
    """Return how many of ``count`` elements share a lane."""
    return 2 if element.primitive_bitwidth == 16 and count > 1 else 1


@triton.constexpr_function
def lanes_share(count: int, element: tl.dtype, in_gluon: bool) -> int:
    """Return shared_by, or 1 in Gluon, where the layout of a tile may have neighbours in two threads."""
    return 1 if in_gluon else shared_by(count, element)


@triton.constexpr_function
def words_in(element: tl.dtype) -> int:
    """Return the number of words in a lane."""
    return 2 if element.primitive_bitwidth == 64 else 1


@triton.constexpr_function
def bits_of(element: tl.dtype) -> tl.dtype:
    """The integer type of the same size."""
    return {8: tl.int8, 16: tl.int16, 32: tl.int32, 64: tl.int64}[element.primitive_bitwidth]


@triton.constexpr_function
def moved_as(element: tl.dtype) -> tl.dtype:
    """The type in which elements only move: floats of 8 bits and masks as integers."""
    return tl.int8 if element.is_fp8() or element.is_int1() else element


@triton.constexpr_function
def combined_as(element: tl.dtype) -> tl.dtype:
    """The type that results are rounded to: masks are bytes on their way."""
    return tl.int8 if element.is_int1() else element


@triton.constexpr_function
def summed_in(element: tl.dtype) -> tl.dtype:
    """The type in which elements are combined: half types and floats of 8 bits in float32."""
    if element.is_floating():
        return tl.float32 if element.primitive_bitwidth < 32 else element
    return tl.int8 if element.is_int1() else element


@triton.constexpr_function
def identity_of(op: str, wide: tl.dtype, element: tl.dtype) -> int | float:
    """Return the neutral element of ``op``, for elements that are combined as ``wide``."""
    if wide.is_floating():
        return {"min": math.inf, "max": -math.inf, "prod": 1.0}.get(op, 0.0)
    signed = wide.is_int_signed()
    bits = wide.primitive_bitwidth - signed
    all_bits = 1 if element.is_int1() else -1 if signed else 2**bits - 1
    return {"min": 2**bits - 1, "max": -(2**bits) if signed else 0, "prod": 1, "and": all_bits}.get(op, 0)


@jit
def to_lanes(flat, shared: tl.constexpr):
    """Convert a block of one dimension to lanes of ``shared`` elements."""
    count: tl.constexpr = flat.shape[0]
    bits = flat.to(bits_of(flat.dtype), bitcast=True)
    if shared == 2:
        low, high = tl.split(tl.reshape(bits, [count // 2, 2]))
        return both(low.to(tl.int32), high.to(tl.int32))
    else:
        return bits if words_in(flat.dtype) == 2 else bits.to(tl.int32)


@jit
def from_lanes(lanes, element: tl.constexpr, count: tl.constexpr, shared: tl.constexpr):
    """Convert lanes to the block of ``count`` elements: the inverse of to_lanes."""
    if shared == 2:
        bits = tl.reshape(tl.join(lanes.to(tl.int16), (lanes >> 16).to(tl.int16)), [count])
    else:
        bits = lanes.to(bits_of(element))
    return bits.to(element, bitcast=True)


@jit
def both(low, high):
    """Join two numbers of 16 bits to one of 32."""
    return (low & 0xFFFF) | (high << 16)


@jit
def element_in(lanes, element: tl.constexpr, place: tl.constexpr):
    """The first or the second element of each lane, of the type they are combined in."""
    bits = lanes >> 16 if place == 1 else lanes
    return bits.to(bits_of(element)).to(element, bitcast=True).to(summed_in(element))


@jit
def as_lanes(values, element: tl.constexpr):
    """The bits of values that were combined, rounded to the element: of lanes with one each."""
    bits = arch.rounded(values, element).to(bits_of(element), bitcast=True)
    return bits if words_in(element) == 2 else bits.to(tl.int32)


@jit
def combine(op: tl.constexpr, one, other):
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
