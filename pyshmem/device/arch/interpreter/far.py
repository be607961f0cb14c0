"""Access of interpreted kernels to far PEs, by the requests of the host's calls. A pointer to far memory holds a place."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, _get_np_dtype

from pyshmem.base.far import OPERATORS, SHIFT, TYPES
from pyshmem.device.arch.interpreter.values import array, item_bytes, number
from pyshmem.native import _native

_KINDS = {getattr(tl, name): name for name in TYPES}


def is_far(pointers: Any) -> bool:
    """Return whether any of the pointers is a place."""
    return bool((array(pointers).astype(np.uint64) >> np.uint64(SHIFT)).any())


def copy(dest: Any, source: Any, nbytes: int) -> None:
    """Copy bytes between a place and memory here. A put is complete after quiet."""
    if not nbytes:
        return
    if is_far(dest):
        _native.far_put(number(dest), number(source), nbytes)
    else:
        _native.far_get(number(dest), number(source), nbytes)


def copy_strided(dest: Any, source: Any, steps: tuple[int, int, int], count: int) -> None:
    """Copy items. steps: bytes between them in dest and in source, and bytes of an item."""
    move = _native.far_put_strided if is_far(dest) else _native.far_get_strided
    if steps[2] and count:
        move(number(dest), number(source), *steps, count)


def load(start: Any, shape: Any, count: int) -> Any:
    """Return ``count`` elements at a place, in a block of ``shape`` with zeros after them; () is a scalar."""
    element = start.dtype.element_ty
    found = np.zeros(shape or 1, _get_np_dtype(element))
    if count:
        _native.far_get(found.ctypes.data, number(start), count * item_bytes(start))
    return tl.tensor(TensorHandle(found, element), tl.block_type(element, list(shape)) if shape else element)


def store(start: Any, values: Any, count: int) -> None:
    """Store ``count`` elements at a place."""
    own = np.ascontiguousarray(array(values))
    if count:
        _native.far_put(number(start), own.ctypes.data, count * item_bytes(start))


def atomic(op: str, pointers: Any, mask: Any, *operands: Any) -> Any:
    """Apply an atomic to each element, near or far, and return the old values. operands: cond before value."""
    element = pointers.dtype.element_ty
    lanes = np.asarray(True) if mask is None else array(mask).astype(bool)
    places, lanes, *values = np.broadcast_arrays(array(pointers), lanes, *map(array, operands))
    old = np.zeros(places.shape, _get_np_dtype(element))
    for lane in np.ndindex(places.shape):
        if lanes[lane]:
            old[lane] = _apply(op, _KINDS[element], int(places[lane]), *(each[lane].item() for each in values))
    kind = tl.block_type(element, list(old.shape)) if pointers.type.is_block() else element
    return tl.tensor(TensorHandle(old, element), kind)


def _apply(op: str, kind: str, place: int, *values: Any) -> Any:
    if op in ("min", "max"):
        return _order(op, kind, place, *values)
    if place >> SHIFT:
        return getattr(_native, f"far_fetch_{kind}")(OPERATORS.index(op), place, *values)
    return getattr(_native, f"{op}_{kind}")(place, *values)


def _order(op: str, kind: str, place: int, value: Any) -> Any:
    """Perform min or max by compare-and-swap.

    Floats are ordered by their bits, as in arch.interpreter.atomics: as signed integers, or as unsigned ones in reverse
    for a negative value.
    """
    own = np.array([value], kind)
    if kind.startswith("float"):
        negative = bool(np.signbit(own[0]))
        op = {"min": "max", "max": "min"}[op] if negative else op
        kind = kind.replace("float", "uint" if negative else "int")
    wanted, combine = own.view(kind)[0].item(), min if op == "min" else max
    seen = _apply("fetch", kind, place)
    while True:
        before = _apply("compare_swap", kind, place, seen, combine(seen, wanted))
        if before == seen:
            return np.array([before], kind).view(own.dtype)[0].item()
        seen = before
