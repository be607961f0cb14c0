"""Atomic memory operations: one table of operators, one body for each kind of call. Spec: OpenSHMEM 1.6, 9.7.

The processor's atomics are used in CPU memory, and the GPU's, enqueued on torch's current stream, in GPU memory. All
operators are atomic with respect to each other, to waits and to kernels, also those from another node.

The operations themselves are in native/base/word.h, and those on GPU heaps in kernels/host_atomics.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.memory.arguments import (
    WHOLE,
    Array,
    Operand,
    describe,
    name_of,
    refuse_dtype,
    require_one_dtype,
    require_writable,
    scalar,
)
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.words import ATOMICS
from pyshmem.transport.near_or_far import word_on

__all__ = [
    "atomic_add", "atomic_and", "atomic_compare_swap", "atomic_compare_swap_nbi", "atomic_fetch", "atomic_fetch_add",
    "atomic_fetch_add_nbi", "atomic_fetch_and", "atomic_fetch_and_nbi", "atomic_fetch_inc", "atomic_fetch_inc_nbi",
    "atomic_fetch_nbi", "atomic_fetch_or", "atomic_fetch_or_nbi", "atomic_fetch_xor", "atomic_fetch_xor_nbi",
    "atomic_inc", "atomic_or", "atomic_set", "atomic_swap", "atomic_swap_nbi", "atomic_xor",
]  # fmt: skip

_NUMBERS = ATOMICS["fetch"]
_EXACT = frozenset(dtype for dtype in _NUMBERS if not dtype.is_floating_point)


class _Row(NamedTuple):
    operator: str  # of a route's atomics
    summary: str
    fetches: bool = True  # whether the previous value is returned

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return ATOMICS[self.operator.removeprefix("fetch_")]


_ROWS = {
    "atomic_set": _Row("set", "Write ``value``", False),
    "atomic_add": _Row("add", "Add ``value``", False),
    "atomic_and": _Row("and", "Apply a bitwise and with ``value``", False),
    "atomic_or": _Row("or", "Apply a bitwise or with ``value``", False),
    "atomic_xor": _Row("xor", "Apply a bitwise exclusive or with ``value``", False),
    "atomic_inc": _Row("add", "Add 1", False),
    "atomic_fetch": _Row("fetch", "Read the element"),
    "atomic_swap": _Row("swap", "Write ``value``"),
    "atomic_compare_swap": _Row("compare_swap", "Write ``value`` if the element equals ``cond``"),
    "atomic_fetch_inc": _Row("fetch_add", "Add 1"),
    "atomic_fetch_add": _Row("fetch_add", "Add ``value``"),
    "atomic_fetch_and": _Row("fetch_and", "Apply a bitwise and with ``value``"),
    "atomic_fetch_or": _Row("fetch_or", "Apply a bitwise or with ``value``"),
    "atomic_fetch_xor": _Row("fetch_xor", "Apply a bitwise exclusive or with ``value``"),
}
_DOC = """{summary} on ``pe``, atomically{fetched}

    {into}{word}: one symmetric element of {types}.{values}
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: atomic with respect to every AMO, wait and test on the element; {done}
    Errors: NotSymmetricError, ArgumentError, DtypeError, OutOfRangeError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: OpenSHMEM 1.6, 9.7 SHMEM_{page}.
    """
_RETURNED = (", and return the previous value.", "", "complete on return.")
_QUIET = (".", "", "complete after quiet or a barrier.")
_STORED = (
    ", and store the previous value in ``fetch``.",
    "fetch: one element of {word}'s dtype in private or symmetric memory.\n    ",
    "``fetch`` holds the value after quiet.",
)


def _documented(function: Callable[..., Any], name: str, nbi: bool = False) -> Callable[..., Any]:
    row = _ROWS[name]
    word = "source" if name == "atomic_fetch" else "target"
    names = [each for each in ("cond", "value") if f"``{each}``" in row.summary]
    values = f"  {', '.join(names)}: {'a scalar' if len(names) == 1 else 'scalars'} that it can hold." if names else ""
    fetched, into, done = _STORED if nbi else _RETURNED if row.fetches else _QUIET
    if name == "atomic_fetch":
        fetched = fetched.replace("the previous value", "its value")
    function.__name__ = function.__qualname__ = name + ("_nbi" if nbi else "")
    function.__code__ = function.__code__.replace(co_name=function.__name__)  # for what says where a PE is
    types = ", ".join(name_of(dtype) for dtype in row.dtypes)
    function.__doc__ = _DOC.format(
        summary=row.summary, fetched=fetched, into=into.format(word=word), word=word, types=types, values=values,
        done=done, page=function.__name__.upper(),
    )  # fmt: skip
    return function


def _update(name: str) -> Callable[..., Any]:
    operator, _, fetches = _ROWS[name]
    dtypes = _ROWS[name].dtypes

    def update(target: Any, value: Any, pe: int, ctx: Ctx | None = None) -> Any:
        if ctx is not None:
            pe = world_pe(name, ctx, pe)
        to, place, dtype = word_on(name, "target", target, pe)
        apply = to.atomics[operator].get(dtype) or refuse_dtype(name, "target", dtype, dtypes)
        if type(value) is not int or dtype not in _EXACT:
            whole = type(value) in WHOLE and dtype in _EXACT
            value = int(value) if whole else scalar(name, "value", value, dtype)
        try:
            old = apply(place, value)
        except OverflowError:
            return scalar(name, "value", value, dtype)
        return old if fetches else None

    return _documented(update, name)


def _increment(name: str) -> Callable[..., Any]:
    operator, _, fetches = _ROWS[name]
    dtypes = _ROWS[name].dtypes

    def increment(target: Any, pe: int, ctx: Ctx | None = None) -> Any:
        if ctx is not None:
            pe = world_pe(name, ctx, pe)
        to, place, dtype = word_on(name, "target", target, pe)
        apply = to.atomics[operator].get(dtype) or refuse_dtype(name, "target", dtype, dtypes)
        old = apply(place, 1)
        return old if fetches else None

    return _documented(increment, name)


def atomic_fetch(source: Array, pe: int, ctx: Ctx | None = None) -> Any:
    if ctx is not None:
        pe = world_pe("atomic_fetch", ctx, pe)
    to, place, dtype = word_on("atomic_fetch", "source", source, pe)
    apply = to.atomics["fetch"].get(dtype) or refuse_dtype("atomic_fetch", "source", dtype, _NUMBERS)
    return apply(place)


def atomic_compare_swap(target: Array, cond: Any, value: Any, pe: int, ctx: Ctx | None = None) -> Any:
    name = "atomic_compare_swap"
    if ctx is not None:
        pe = world_pe(name, ctx, pe)
    to, place, dtype = word_on(name, "target", target, pe)
    apply = to.atomics["compare_swap"].get(dtype) or refuse_dtype(name, "target", dtype, _NUMBERS)
    if type(cond) is not int or type(value) is not int or dtype not in _EXACT:
        if type(cond) in WHOLE and type(value) in WHOLE and dtype in _EXACT:
            cond, value = int(cond), int(value)
        else:
            cond, value = scalar(name, "cond", cond, dtype), scalar(name, "value", value, dtype)
    try:
        return apply(place, cond, value)
    except OverflowError:
        return scalar(name, "cond", cond, dtype), scalar(name, "value", value, dtype)  # one of them refuses


atomic_set, atomic_add, atomic_and, atomic_or, atomic_xor = (
    _update(f"atomic_{each}") for each in ("set", "add", "and", "or", "xor")
)
atomic_swap, atomic_fetch_add, atomic_fetch_and, atomic_fetch_or, atomic_fetch_xor = (
    _update(f"atomic_{each}") for each in ("swap", "fetch_add", "fetch_and", "fetch_or", "fetch_xor")
)
atomic_inc, atomic_fetch_inc = _increment("atomic_inc"), _increment("atomic_fetch_inc")
_documented(atomic_fetch, "atomic_fetch")
_documented(atomic_compare_swap, "atomic_compare_swap")


# ---- non-blocking fetching atomics: fetch already holds the value on return ----


def _fetch_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Array, source: Array, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "source", source, pe, ctx)

    return call


def _inc_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Array, target: Array, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "target", target, pe, ctx, value=1)

    return call


def _update_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Array, target: Array, value: Any, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "target", target, pe, ctx, value=value)

    return call


def _compare_swap_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Array, target: Array, cond: Any, value: Any, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "target", target, pe, ctx, cond=cond, value=value)

    return call


def _perform(name: str, fetch: Any, argument: str, target: Any, pe: int, ctx: Ctx | None, **values: Any) -> None:
    """values: cond before value, in the order of the operators' arguments."""
    operator, dtypes = _ROWS[name].operator, _ROWS[name].dtypes
    routine = name + "_nbi"
    if ctx is not None:
        pe = world_pe(routine, ctx, pe)
    to, place, dtype = word_on(routine, argument, target, pe)
    if dtype not in dtypes:
        refuse_dtype(routine, argument, dtype, dtypes)
    into = _one_element(routine, fetch, dtype, argument)
    exact = [scalar(routine, each, value, dtype) for each, value in values.items()]
    old = to.atomics[operator][dtype](place, *exact)
    if into.heap is cpu and into.address % dtype.itemsize == 0:
        cpu.near.atomics["set"][dtype](into.address, old)
    else:
        element = np.array([old], name_of(dtype))
        into.heap.near.store(into.address, element.ctypes.data, dtype.itemsize)


def _one_element(routine: str, fetch: Any, dtype: Any, argument: str) -> Operand:
    into = describe(routine, "fetch", fetch)
    if into.nelems != 1:
        refuse(ArgumentError, routine, "fetch", f"an array of shape {into.shape}", "exactly one element")
    require_one_dtype(routine, (argument, "fetch"), dtype, into.dtype)
    require_writable(routine, "fetch", fetch)
    return into


_SHAPES = {"atomic_fetch": _fetch_nbi, "atomic_fetch_inc": _inc_nbi, "atomic_compare_swap": _compare_swap_nbi}


def _nbi(name: str) -> Callable[..., None]:
    return _documented(_SHAPES.get(name, _update_nbi)(name), name, nbi=True)


atomic_fetch_nbi, atomic_swap_nbi = _nbi("atomic_fetch"), _nbi("atomic_swap")
atomic_compare_swap_nbi, atomic_fetch_inc_nbi = _nbi("atomic_compare_swap"), _nbi("atomic_fetch_inc")
atomic_fetch_add_nbi, atomic_fetch_and_nbi = _nbi("atomic_fetch_add"), _nbi("atomic_fetch_and")
atomic_fetch_or_nbi, atomic_fetch_xor_nbi = _nbi("atomic_fetch_or"), _nbi("atomic_fetch_xor")
