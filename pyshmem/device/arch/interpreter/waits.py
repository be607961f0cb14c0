"""Waits and tests on one word in interpreted kernels, by the host's functions."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.base.comparisons import SIGNS
from pyshmem.base.job import job
from pyshmem.device.arch.interpreter.checks import check_waited
from pyshmem.device.arch.interpreter.refusing import in_kernel
from pyshmem.device.arch.interpreter.values import fit, number, tensor_of
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.memory.cpu_heap import cpu
from pyshmem.native import _native


def wait(ctx: Any, routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> Any:
    """Wait until the comparison of the word holds, with acquire order, and return the value seen.

    Errors: WaitTimeoutError, DtypeError, ArgumentError.
    """
    name, code, wanted = _compared(routine, argument, pointer, cmp, value)
    address = number(pointer)
    try:
        seen = getattr(_native, f"wait_{name}")(address, code, wanted, job.timeout, job.spins)
    except TimeoutError:
        seen = getattr(_native, f"fetch_{name}")(address)
        got = f"{seen} at {cpu.place(address - cpu.base)}"
        refuse_timeout(in_kernel(routine), argument, got, f"a value {SIGNS[code]} {wanted}")
    return tensor_of(seen, pointer.dtype.element_ty)


def test(ctx: Any, routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> Any:
    """Return whether the comparison holds now, with acquire order. Errors: DtypeError, ArgumentError."""
    name, code, wanted = _compared(routine, argument, pointer, cmp, value)
    return tensor_of(getattr(_native, f"test_{name}")(number(pointer), code, wanted), tl.int1)


def fetch(ctx: Any, pointer: Any) -> Any:
    """Load a uint64 atomically, before all later accesses."""
    return tensor_of(_native.fetch_uint64(number(pointer)), tl.uint64)


def _compared(routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> tuple[str, int, int]:
    return *check_waited(routine, argument, pointer, cmp), number(fit(routine, "value", value, pointer))
