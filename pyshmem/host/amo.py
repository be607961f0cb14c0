"""Atomic memory operations: one table of operators, one body for each kind of call. Spec: OpenSHMEM 1.6, 9.7.

They are atomics of the processor or, on GPU heaps, of the GPU, enqueued on torch's current stream. All operators are atomic
with respect to each other, to waits and to kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.runtime import _native
from pyshmem.runtime.arguments import delta_to, refuse_dtype, scalar, word
from pyshmem.runtime.heap import cpu

_INTEGERS = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_ALL = (*_INTEGERS, torch.float32, torch.float64)
_EXACT = frozenset(_INTEGERS)
_CODES = {dtype: str(dtype).removeprefix("torch.") for dtype in _ALL}

_DOC = """{summary}

    {word}: one symmetric element of {types}, on ``pe``.
    {value}pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: atomic with respect to every AMO, wait and test on the element; {done}
    Errors: NotSymmetricError, ArgumentError, DtypeError, OutOfRangeError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: OpenSHMEM 1.6, 9.7 {page}.
    """
_FETCHED = "complete on return."
_QUIET = "complete after quiet or a barrier."

# name: (native operator, element types, what it does, whether the old value is returned)
_ONE_VALUE = {
    "atomic_set": ("set", _ALL, "Write ``value``", False),
    "atomic_add": ("fetch_add", _ALL, "Add ``value``", False),
    "atomic_and": ("fetch_and", _INTEGERS, "Apply bitwise and with ``value``", False),
    "atomic_or": ("fetch_or", _INTEGERS, "Apply bitwise or with ``value``", False),
    "atomic_xor": ("fetch_xor", _INTEGERS, "Apply bitwise exclusive or with ``value``", False),
    "atomic_swap": ("swap", _ALL, "Write ``value`` and return the previous value", True),
    "atomic_fetch_add": ("fetch_add", _ALL, "Add ``value`` and return the previous value", True),
    "atomic_fetch_and": (
        "fetch_and",
        _INTEGERS,
        "Apply bitwise and with ``value`` and return the previous value",
        True,
    ),
    "atomic_fetch_or": ("fetch_or", _INTEGERS, "Apply bitwise or with ``value`` and return the previous value", True),
    "atomic_fetch_xor": (
        "fetch_xor",
        _INTEGERS,
        "Apply bitwise exclusive or with ``value`` and return the previous value",
        True,
    ),
}


def _natives(operator: str, dtypes: tuple[torch.dtype, ...]) -> dict[Any, Callable[..., Any]]:
    return {dtype: getattr(_native, f"{operator}_{_CODES[dtype]}") for dtype in dtypes}


def _document(
    function: Callable[..., Any], name: str, summary: str, dtypes: tuple[torch.dtype, ...], fetched: bool, value: str
) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    types = ", ".join(_CODES[dtype] for dtype in dtypes)
    function.__doc__ = _DOC.format(
        summary=f"{summary}, atomically.",
        word="source" if name == "atomic_fetch" else "target",
        types=types,
        value=value,
        done=_FETCHED if fetched else _QUIET,
        page="SHMEM_" + name.upper(),
    )
    return function


def _update(name: str) -> Callable[..., Any]:
    operator, dtypes, summary, fetched = _ONE_VALUE[name]
    natives = _natives(operator, dtypes)

    def update(target: Any, value: Any, pe: int, ctx: Ctx | None = None) -> Any:
        if ctx is not None:
            pe = world_pe(name, ctx, pe)
        heap, address, dtype = word(name, "target", target)
        try:
            address += heap.deltas[pe]
        except (KeyError, TypeError):
            address += delta_to(name, pe, heap)
        native = natives.get(dtype) or refuse_dtype(name, "target", dtype, natives)
        if type(value) is not int or dtype not in _EXACT or heap is not cpu:
            value = scalar(name, "value", value, dtype)
        if heap is not cpu:
            return heap.amo(operator, dtype, address, value, fetch=fetched)
        try:
            old = native(address, value)
        except OverflowError:
            return scalar(name, "value", value, dtype)
        return old if fetched else None

    return _document(update, name, summary, dtypes, fetched, "value: a scalar that the dtype can hold.\n    ")


atomic_set, atomic_add, atomic_and, atomic_or, atomic_xor = map(_update, list(_ONE_VALUE)[:5])
atomic_swap, atomic_fetch_add, atomic_fetch_and, atomic_fetch_or, atomic_fetch_xor = map(_update, list(_ONE_VALUE)[5:])
SET, FETCH = _natives("set", _ALL), _natives("fetch", _ALL)
_SWAP_IF, _ADD = _natives("compare_swap", _ALL), _natives("fetch_add", _ALL)


def atomic_fetch(source: Any, pe: int, ctx: Ctx | None = None) -> Any:
    if ctx is not None:
        pe = world_pe("atomic_fetch", ctx, pe)
    heap, address, dtype = word("atomic_fetch", "source", source)
    native = FETCH.get(dtype) or refuse_dtype("atomic_fetch", "source", dtype, FETCH)
    address += delta_to("atomic_fetch", pe, heap)
    return native(address) if heap is cpu else heap.amo("fetch", dtype, address)


def atomic_compare_swap(target: Any, cond: Any, value: Any, pe: int, ctx: Ctx | None = None) -> Any:
    name = "atomic_compare_swap"
    if ctx is not None:
        pe = world_pe(name, ctx, pe)
    heap, address, dtype = word(name, "target", target)
    address += delta_to(name, pe, heap)
    native = _SWAP_IF.get(dtype) or refuse_dtype(name, "target", dtype, _SWAP_IF)
    if type(cond) is not int or type(value) is not int or dtype.is_floating_point or heap is not cpu:
        cond, value = scalar(name, "cond", cond, dtype), scalar(name, "value", value, dtype)
    if heap is not cpu:
        return heap.amo("compare_swap", dtype, address, value, cond)
    try:
        return native(address, cond, value)
    except OverflowError:
        return scalar(name, "cond", cond, dtype), scalar(name, "value", value, dtype)  # one of them refuses


def atomic_fetch_inc(target: Any, pe: int, ctx: Ctx | None = None) -> Any:
    if ctx is not None:
        pe = world_pe("atomic_fetch_inc", ctx, pe)
    return _increment("atomic_fetch_inc", target, pe, True)


def atomic_inc(target: Any, pe: int, ctx: Ctx | None = None) -> None:
    if ctx is not None:
        pe = world_pe("atomic_inc", ctx, pe)
    _increment("atomic_inc", target, pe, False)


def _increment(routine: str, target: Any, pe: int, fetch: bool) -> Any:
    heap, address, dtype = word(routine, "target", target)
    native = _ADD.get(dtype) or refuse_dtype(routine, "target", dtype, _ADD)
    address += delta_to(routine, pe, heap)
    return native(address, 1) if heap is cpu else heap.amo("fetch_add", dtype, address, 1, fetch=fetch)


_document(atomic_fetch, "atomic_fetch", "Return the element", _ALL, True, "")
_document(
    atomic_compare_swap,
    "atomic_compare_swap",
    "Write ``value`` if the element equals ``cond`` and return the previous value",
    _ALL,
    True,
    "cond, value: scalars that the dtype can hold.\n    ",
)
_document(atomic_fetch_inc, "atomic_fetch_inc", "Add 1 and return the previous value", _ALL, True, "")
_document(atomic_inc, "atomic_inc", "Add 1", _ALL, False, "")
