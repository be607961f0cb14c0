"""Atomics in interpreted kernels, by Triton's atomics, or by requests if any of the elements is far."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.runtime.interpreter import interpreter_semantic

from pyshmem.device.arch.interpreter import far
from pyshmem.device.arch.operators import operate


def atomic(ctx: Any, op: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    """Perform Triton's atomic of the operator. Its mask must be a tensor or None."""
    lanes = mask if mask is None else interpreter_semantic.to_tensor(mask)
    if far.is_far(pointers):
        return far.atomic(op, pointers, lanes, value)
    if op in ("min", "max") and value.dtype.is_floating():
        return _order_floats(op, pointers, value, lanes, sem, scope)
    return operate(op, pointers, value, lanes, sem, scope)


def compare_swap(ctx: Any, pointers: Any, expected: Any, wanted: Any, sem: Any, scope: Any) -> Any:
    if far.is_far(pointers):
        return far.atomic("compare_swap", pointers, None, expected, wanted)
    return tl.atomic_cas(pointers, expected, wanted, sem=sem, scope=scope)


def _order_floats(op: str, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    """Perform min or max of floats on their bits: as signed integers, or as unsigned ones in reverse for negative values.

    Triton does this for GPUs. Its interpreter does so too, but returns the bits of the old value as a number.
    """
    signed, unsigned = (tl.int32, tl.uint32) if value.dtype.primitive_bitwidth == 32 else (tl.int64, tl.uint64)
    bits = value.to(signed, bitcast=True)
    below = bits < 0
    lanes = below == below if mask is None else mask
    back = {"min": "max", "max": "min"}[op]
    up = operate(op, pointers.to(tl.pointer_type(signed), bitcast=True), bits, lanes & ~below, sem, scope)
    backwards = pointers.to(tl.pointer_type(unsigned), bitcast=True)
    down = operate(back, backwards, bits.to(unsigned, bitcast=True), lanes & below, sem, scope)
    return tl.where(below, down.to(signed, bitcast=True), up).to(value.dtype, bitcast=True)
