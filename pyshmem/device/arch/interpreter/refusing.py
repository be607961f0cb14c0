"""Errors of interpreted kernels. Their messages have the name of the kernel before that of the routine."""

from __future__ import annotations

import sys
from typing import NoReturn

from triton.runtime.interpreter import GridExecutor

from pyshmem.base.errors import ShmemError, refuse
from pyshmem.device.arch.rules import describe as describe


def refuse_call(kind: type[ShmemError], routine: str, argument: str, got: str, wants: str) -> NoReturn:
    """Raise ``kind``. The message has the name of the kernel before that of the routine."""
    refuse(kind, in_kernel(routine), argument, got, wants)


def in_kernel(routine: str) -> str:
    """Return the names of the running kernel and of the routine, as errors contain them."""
    frame = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), GridExecutor):
        frame = frame.f_back  # type: ignore[assignment]
    kernel = frame.f_locals["self"].fn.__name__ if frame is not None else "?"
    return f"kernel {kernel}: {routine}"
