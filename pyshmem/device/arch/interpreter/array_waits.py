"""Waits and tests on arrays of words where kernels are interpreted: the host's, on real addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl

from pyshmem.device.arch.interpreter.checks import check_waited
from pyshmem.device.arch.interpreter.refusing import in_kernel
from pyshmem.device.arch.interpreter.values import memory, number, tensor_of
from pyshmem.runtime import words
from pyshmem.runtime.cpu_heap import cpu

NONE = 2**64 - 1  # C's SIZE_MAX


def wait_all(ctx: Any, routine: str, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> None:
    """Wait as an acquire until each word has compared so. value: one for all, or a pointer to one for each.

    Errors: WaitTimeoutError.
    """
    words.wait_all(_many(routine, ivars, nelems, status, cmp, value))


def wait_any(ctx: Any, routine: str, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Wait as an acquire until some word compares so; its index, SIZE_MAX where none counts. Errors: WaitTimeoutError."""
    return _index(words.wait_any(_many(routine, ivars, nelems, status, cmp, value)))


def wait_some(ctx: Any, routine: str, ivars: Any, nelems: Any, indices: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Wait as an acquire until words compare so; their indices in order to ``indices``, and how many they are.

    Errors: WaitTimeoutError.
    """
    return _indices(words.wait_some(_many(routine, ivars, nelems, status, cmp, value)), indices)


def test_all(ctx: Any, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Whether each word compares so now, as an acquire."""
    return tensor_of(words.all_hold(_many("test_all", ivars, nelems, status, cmp, value)), tl.int1)


def test_any(ctx: Any, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> Any:
    """The index of a word that compares so now, as an acquire; SIZE_MAX where none does."""
    many = _many("test_any", ivars, nelems, status, cmp, value)
    return _index(words.any_holds(many, many.look()))


def test_some(ctx: Any, ivars: Any, nelems: Any, indices: Any, status: Any, cmp: Any, value: Any) -> Any:
    """The indices of the words that compare so now, in order, to ``indices``, as an acquire; how many they are."""
    return _indices(words.satisfied(_many("test_some", ivars, nelems, status, cmp, value)), indices)


def _many(routine: str, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> words.Words:
    """The operands as the host's waits take them; what they have read stays so while they wait."""
    count = number(nelems)
    name, code = check_waited(routine, "ivars", ivars, cmp)
    wanted = memory(value, count).copy() if value.dtype.is_ptr() else number(value)
    excluded = None if status is None else (memory(status, count) != 0).astype(np.int32)
    place = words.on_cpu, cpu.base, number(ivars), count, getattr(torch, name)
    address = 0 if excluded is None else excluded.ctypes.data
    return words.Words(in_kernel(routine), *place, code, wanted, address, excluded)


def _index(found: int | None) -> Any:
    return tensor_of(NONE if found is None else found, tl.uint64)


def _indices(found: list[int], indices: Any) -> Any:
    memory(indices, len(found))[:] = found
    return tensor_of(len(found), tl.uint64)
