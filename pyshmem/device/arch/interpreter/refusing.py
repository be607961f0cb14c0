"""How the interpreter's side refuses a call: with the running kernel's name before the routine's."""

from __future__ import annotations

import sys
from typing import NoReturn

from triton.runtime.interpreter import GridExecutor

from pyshmem.device.arch.rules import describe as describe
from pyshmem.runtime.errors import ShmemError, WaitTimeoutError, refuse
from pyshmem.runtime.job import job


def refuse_call(kind: type[ShmemError], routine: str, argument: str, got: str, wants: str) -> NoReturn:
    """refuse, with the kernel's name before the routine's."""
    refuse(kind, in_kernel(routine), argument, got, wants)


def in_kernel(routine: str) -> str:
    """The routine with the running kernel's name, as errors name it."""
    frame = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), GridExecutor):
        frame = frame.f_back  # type: ignore[assignment]
    kernel = frame.f_locals["self"].fn.__name__ if frame is not None else "?"
    return f"kernel {kernel}: {routine}"


def refuse_wait(routine: str, argument: str, got: str, wants: str) -> NoReturn:
    """Errors: WaitTimeoutError."""
    limit = "PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit"
    refuse_call(WaitTimeoutError, routine, argument, f"{got} in {job.timeout:g} s", f"{wants}; {limit}")
