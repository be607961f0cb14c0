"""Non-blocking fetching atomics: the previous value is in memory after quiet. Spec: OpenSHMEM 1.6, 9.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.runtime import _native
from pyshmem.runtime.arguments import Operand, delta_to, describe, name_of, refuse_dtype, require_writable, scalar, word
from pyshmem.runtime.errors import ArgumentError, DtypeError, refuse
from pyshmem.runtime.heap import cpu

_INTEGERS = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_DTYPES = (*_INTEGERS, torch.float32, torch.float64)
# name without _nbi: (native operator, element types)
_OPERATORS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "atomic_fetch": ("fetch", _DTYPES),
    "atomic_compare_swap": ("compare_swap", _DTYPES),
    "atomic_swap": ("swap", _DTYPES),
    "atomic_fetch_inc": ("fetch_add", _DTYPES),
    "atomic_fetch_add": ("fetch_add", _DTYPES),
    "atomic_fetch_and": ("fetch_and", _INTEGERS),
    "atomic_fetch_or": ("fetch_or", _INTEGERS),
    "atomic_fetch_xor": ("fetch_xor", _INTEGERS),
}
_DOES = {
    "atomic_fetch": "Read the element of ``source`` on ``pe``",
    "atomic_compare_swap": "Write ``value`` if the element equals ``cond``",
    "atomic_swap": "Write ``value``",
    "atomic_fetch_inc": "Add 1",
    "atomic_fetch_add": "Add ``value``",
    "atomic_fetch_and": "Apply bitwise and with ``value``",
    "atomic_fetch_or": "Apply bitwise or with ``value``",
    "atomic_fetch_xor": "Apply bitwise exclusive or with ``value``",
}
_DOC = """{does}, atomically; the previous value is stored in ``fetch``.

    fetch: a private or symmetric array of one element, of the dtype of {target}.
    {target}: one symmetric element of {types}, on ``pe``.
    {values}pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: atomic with respect to every AMO, wait and test on the element; fetch holds the value after quiet.
    Errors: NotSymmetricError, ArgumentError, DtypeError, OutOfRangeError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: OpenSHMEM 1.6, 9.7 {page}.
    """
_VALUES = {
    "atomic_fetch": "",
    "atomic_fetch_inc": "",
    "atomic_compare_swap": "cond, value: scalars that the dtype can hold.\n    ",
}


def _fetch_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Any, source: Any, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "source", source, pe, ctx)

    return call


def _inc_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Any, target: Any, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "target", target, pe, ctx, value=1)

    return call


def _update_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Any, target: Any, value: Any, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "target", target, pe, ctx, value=value)

    return call


def _compare_swap_nbi(name: str) -> Callable[..., None]:
    def call(fetch: Any, target: Any, cond: Any, value: Any, pe: int, ctx: Ctx | None = None) -> None:
        _perform(name, fetch, "target", target, pe, ctx, cond=cond, value=value)

    return call


def _perform(name: str, fetch: Any, argument: str, target: Any, pe: int, ctx: Ctx | None, **values: Any) -> None:
    """values: cond before value, as the native operators take them."""
    operator, dtypes = _OPERATORS[name]
    routine = name + "_nbi"
    if ctx is not None:
        pe = world_pe(routine, ctx, pe)
    heap, address, dtype = word(routine, argument, target)
    if dtype not in dtypes:
        refuse_dtype(routine, argument, dtype, dtypes)
    into = _one_element(routine, fetch, dtype, argument)
    exact = {each: scalar(routine, each, value, dtype) for each, value in values.items()}
    address += delta_to(routine, pe, heap)
    if heap is cpu:
        old = getattr(_native, f"{operator}_{name_of(dtype)}")(address, *exact.values())
    else:
        old = heap.amo(operator, dtype, address, **exact)
    element = np.array([old], name_of(dtype))
    into.heap.store(into.address, element.ctypes.data, dtype.itemsize)


def _one_element(routine: str, fetch: Any, dtype: Any, argument: str) -> Operand:
    into = describe(routine, "fetch", fetch)
    if into.nelems != 1:
        refuse(ArgumentError, routine, "fetch", f"an array of shape {into.shape}", "exactly one element")
    if into.dtype != dtype:
        got, wants = f"{name_of(into.dtype)} elements", f"the {name_of(dtype)} of {argument}: no casting between arrays"
        refuse(DtypeError, routine, "fetch", got, wants)
    require_writable(routine, "fetch", fetch)
    return into


_SHAPES = {"atomic_fetch": _fetch_nbi, "atomic_fetch_inc": _inc_nbi, "atomic_compare_swap": _compare_swap_nbi}


def _make(name: str) -> Callable[..., None]:
    function = _SHAPES.get(name, _update_nbi)(name)
    function.__name__ = function.__qualname__ = name + "_nbi"
    target = "source" if name == "atomic_fetch" else "target"
    function.__doc__ = _DOC.format(
        does=_DOES[name],
        target=target,
        types=", ".join(map(name_of, _OPERATORS[name][1])),
        values=_VALUES.get(name, "value: a scalar that the dtype can hold.\n    "),
        page=f"SHMEM_{name.upper()}_NBI",
    )
    return function


atomic_fetch_nbi, atomic_compare_swap_nbi, atomic_swap_nbi, atomic_fetch_inc_nbi = map(_make, list(_OPERATORS)[:4])
atomic_fetch_add_nbi, atomic_fetch_and_nbi, atomic_fetch_or_nbi, atomic_fetch_xor_nbi = map(_make, list(_OPERATORS)[4:])
