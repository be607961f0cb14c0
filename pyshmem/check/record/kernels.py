"""Kernels in Triton's interpreter, recorded: their loads, stores and atomics on the heap, and their device calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from triton.runtime import interpreter

import pyshmem.device as dev
from pyshmem.check.record import team_flags
from pyshmem.check.record.device_calls import made_for
from pyshmem.check.record.host_calls import value_at
from pyshmem.check.record.recording import Range, recorder
from pyshmem.check.spans import parts
from pyshmem.check.trace import now
from pyshmem.device import arch

Call = Callable[..., Any]
_OPERATORS = {"ADD": "add", "FADD": "add", "AND": "and", "OR": "or", "XOR": "xor", "XCHG": "swap"}
_running: list[str] = []  # the name of the kernel that runs


def install() -> None:
    """Record kernels from now on."""
    builder = interpreter.InterpreterBuilder
    if hasattr(builder, "_pyshmem_watched"):
        return
    builder._pyshmem_watched = True
    for name, made in (
        ("create_masked_load", _load),
        ("create_masked_store", _store),
        ("create_atomic_rmw", _atomic),
        ("create_atomic_cas", _compare_swap),
        ("set_grid_idx", _program),
    ):
        setattr(builder, name, made(getattr(builder, name)))
    interpreter.GridExecutor.__call__ = _kernel(interpreter.GridExecutor.__call__)
    team_flags.install(arch)
    for name in dev.__all__:  # type: ignore[attr-defined]
        made_call = made_for(name, getattr(dev, name))
        if made_call is not None:
            setattr(dev, name, made_call)


def _kernel(call: Call) -> Call:
    @wraps(call)
    def recorded(self: Any, *arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(self, *arguments, **options)
        _running.append(self.fn.__name__)
        recorder.depth.kernels += 1
        try:
            return call(self, *arguments, **options)
        finally:
            _running.pop()
            recorder.write(now(), "done")
            recorder.depth.kernels -= 1
            recorder.launched = True

    return recorded


def _program(call: Call) -> Call:
    """The interpreter runs the programs one after the other, and sets the index of each before it."""

    @wraps(call)
    def recorded(self: Any, x: int, y: int, z: int) -> Any:
        if _running and not recorder.idle:
            recorder.write(now(), "launch", _running[-1], str(x) if not y and not z else f"{x}, {y}, {z}")
        return call(self, x, y, z)

    return recorded


def lanes(pointers: Any, mask: Any) -> list[Range]:
    """The ranges of the heap that the lanes of a block access."""
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    places = np.asarray(pointers.data).reshape(-1)
    if mask is not None:
        places = places[np.broadcast_to(np.asarray(mask.data).astype(bool), np.shape(pointers.data)).reshape(-1)]
    if not places.size or not (recorder.is_seen(int(places[0])) or recorder.is_seen(int(places[-1]))):
        return []
    return recorder.each(places.astype(np.int64), size)


def _load(call: Call) -> Call:
    @wraps(call)
    def recorded(self: Any, ptrs: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        if not recorder.idle and (ranges := lanes(ptrs, mask)):
            recorder.write(now(), "acc", "load", "r", ranges, None)
        return call(self, ptrs, mask, *rest, **options)

    return recorded


def _store(call: Call) -> Call:
    @wraps(call)
    def recorded(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        if recorder.idle or not (ranges := lanes(ptrs, mask)):
            return call(self, ptrs, value, mask, *rest, **options)
        time = now()
        found = call(self, ptrs, value, mask, *rest, **options)
        word = None
        if len(ranges) == 1 and len(ranges[0]) == 3 and ranges[0][2] - ranges[0][1] <= 8:
            first = int(np.asarray(ptrs.data).reshape(-1)[np.argmax(np.asarray(mask.data).reshape(-1))])
            word = value_at(first, ranges[0][2] - ranges[0][1])
        recorder.write(time, "acc", "store", "w", ranges, word)
        return found

    return recorded


def _acquires(sem: Any) -> bool:
    return "ACQ" in str(getattr(sem, "name", sem)).upper()


def _atomic(call: Call) -> Call:
    @wraps(call)
    def recorded(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        if recorder.idle or not (ranges := lanes(ptr, mask)):
            return call(self, op, ptr, val, mask, sem, scope)
        time = now()
        old = call(self, op, ptr, val, mask, sem, scope)
        operator = _OPERATORS.get(str(getattr(op, "name", op)).upper(), "update")
        one = np.size(ptr.data) == 1
        value = int(np.asarray(val.data).reshape(-1)[0]) if one and np.asarray(val.data).dtype.kind in "iu" else None
        _write(time, ptr, ranges, operator, value, _found(old, one) if _acquires(sem) else None)
        return old

    return recorded


def _compare_swap(call: Call) -> Call:
    @wraps(call)
    def recorded(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        if recorder.idle or not (ranges := lanes(ptr, None)):
            return call(self, ptr, cmp, val, sem, scope)
        time = now()
        old = call(self, ptr, cmp, val, sem, scope)
        one = np.size(ptr.data) == 1
        value, condition = (int(np.asarray(each.data).reshape(-1)[0]) if one else None for each in (val, cmp))
        _write(time, ptr, ranges, "compare_swap", value, _found(old, one, condition))
        return old

    return recorded


def _found(old: Any, one: bool, condition: Any = None) -> tuple[Any, ...]:
    """The end of an operation that is complete when it returns: when, and of one word what it has found there."""
    return now(), int(np.asarray(old.data).reshape(-1)[0]) if one else None, condition


def _write(time: int, ptr: Any, ranges: list[Any], operator: str, value: Any, fetched: Any) -> None:
    of = ptr.get_element_ty()
    width = max(1, of.primitive_bitwidth // 8) * (-1 if of.is_floating() else 1)
    for pe, start, end in ((pe, *part) for pe, *span in ranges for part in parts(tuple(span))):
        recorder.write(time, "amo", "atomic", 0, pe, start, end - start, operator, value, fetched, width)
