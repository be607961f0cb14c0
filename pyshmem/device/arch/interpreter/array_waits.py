"""Waits and tests on arrays of words in interpreted kernels, by the host's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl

from pyshmem.device.arch.interpreter.checks import check_waited
from pyshmem.device.arch.interpreter.refusing import in_kernel
from pyshmem.device.arch.interpreter.values import memory, number, tensor_of
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.memory import words
from pyshmem.memory.cpu_heap import cpu

NONE = 2**64 - 1  # C's SIZE_MAX


def wait_all(ctx: Any, routine: str, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> None:
    """Wait until the comparison of each word has held, with acquire order. Errors: WaitTimeoutError.

    value: one value for all words, or a pointer to a value for each.
    """
    words.wait_all(_many(routine, ivars, nelems, status, cmp, value))


def wait_any(ctx: Any, routine: str, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Wait until the comparison of any word holds, with acquire order; return its index, SIZE_MAX if status excludes all.

    Errors: WaitTimeoutError.
    """
    return _index(words.wait_any(_many(routine, ivars, nelems, status, cmp, value)))


def wait_some(ctx: Any, routine: str, ivars: Any, nelems: Any, indices: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Wait until the comparison of any word holds, with acquire order. Errors: WaitTimeoutError.

    Stores the indices of all such words in ``indices``, in ascending order, and returns their number.
    """
    return _indices(words.wait_some(_many(routine, ivars, nelems, status, cmp, value)), indices)


def test_all(ctx: Any, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Return whether the comparison of every word holds now, with acquire order."""
    return tensor_of(words.all_hold(_many("test_all", ivars, nelems, status, cmp, value)), tl.int1)


def test_any(ctx: Any, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Return the index of a word for which the comparison holds now, with acquire order; SIZE_MAX if there is none."""
    many = _many("test_any", ivars, nelems, status, cmp, value)
    return _index(words.any_holds(many, many.look()))


def test_some(ctx: Any, ivars: Any, nelems: Any, indices: Any, status: Any, cmp: Any, value: Any) -> Any:
    """Store the indices of the words for which the comparison holds now, in ascending order, and return their number."""
    return _indices(words.satisfied(_many("test_some", ivars, nelems, status, cmp, value)), indices)


def _many(routine: str, ivars: Any, nelems: Any, status: Any, cmp: Any, value: Any) -> words.Words:
    """Return the operands of the host's waits. Values and status are copied, so later changes have no effect."""
    count = number(nelems)
    name, code = check_waited(routine, "ivars", ivars, cmp)
    wanted = memory(value, count).copy() if value.dtype.is_ptr() else number(value)
    excluded = None if status is None else (memory(status, count) != 0).astype(np.int32)
    place = words.on_cpu, cpu.base, number(ivars), count, getattr(torch, name)
    address = 0 if excluded is None else excluded.ctypes.data
    return words.Words(in_kernel(routine), *place, code, wanted, address, excluded, refuse_timeout)


def _index(found: int | None) -> Any:
    return tensor_of(NONE if found is None else found, tl.uint64)


def _indices(found: list[int], indices: Any) -> Any:
    memory(indices, len(found))[:] = found
    return tensor_of(len(found), tl.uint64)
