"""Conversion of values to the type of a pointee, on GPUs."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch import fields
from pyshmem.device.arch.gpu import blocks
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.checks import check_value, is_number, wrap

jit = triton.jit
decoded = triton.jit(fields.decoded)
decoded_distance = triton.jit(fields.decoded_distance)


@triton.jit
def fit(routine: tl.constexpr, argument: tl.constexpr, value, pointers):
    """Convert ``value`` to a tensor of the pointee's type: integers wrap, floats round. Errors: check_value's."""
    check_value(routine, argument, value, pointers)
    wanted: tl.constexpr = pointers.dtype.element_ty
    if is_number(value):
        return blocks.number(wrap(value, wanted), wanted)
    elif wanted == tl.int1:
        return value != 0
    else:
        return value.to(wanted)


@triton.jit
def rounded(value, element: tl.constexpr):
    """Convert floats to another type, to the nearest value."""
    return value.to(element)


@triton.jit
def uniform(ctx, value):
    """Return one value for the whole program: the largest that its warps have seen."""
    if blocks.num_warps() == 1:
        return value  # one load instruction: one value
    else:
        return tl.max(blocks.zeros(gpu.threads(ctx), value.dtype) + value, axis=0)
