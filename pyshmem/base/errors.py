"""The exception tree, and the function that writes the message of every error.

ShmemError
|-- NotInitializedError (RuntimeError)   before init, or after the last finalize
|-- NotSymmetricError   (ValueError)     the memory is in no live symmetric allocation: private, freed, of an older init
|-- OutOfRangeError     (IndexError)     a PE, a size or an index is out of range
|-- HeapExhaustedError  (MemoryError)    an allocation, or the heap itself, does not fit
|-- DtypeError          (TypeError)      a wrong element type, or a value that the element type cannot hold
|-- ArgumentError       (ValueError)     any other invalid argument: layout, kind, sign
|-- UnreachableError    (RuntimeError)   the PE exists, but no transport reaches it
|-- LaunchError         (RuntimeError)   the job was started in a way that cannot work
|-- BrokenTeamError     (RuntimeError)   an exception has ended a collective call of the team on some PE
`-- WaitTimeoutError    (TimeoutError)   a wait lasted longer than PYSHMEM_WAIT_TIMEOUT
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import NoReturn

from pyshmem.base.job import job

__all__ = [
    "ArgumentError", "BrokenTeamError", "DtypeError", "HeapExhaustedError", "LaunchError", "NotInitializedError",
    "NotSymmetricError", "OutOfRangeError", "ShmemError", "UnreachableError", "WaitTimeoutError",
]  # fmt: skip


class ShmemError(Exception):
    """The base of all errors of pyshmem."""


class NotInitializedError(ShmemError, RuntimeError):
    """A routine was called before init or after the last finalize."""


class NotSymmetricError(ShmemError, ValueError):
    """An argument that must be symmetric memory is not symmetric, or its memory was freed."""


class OutOfRangeError(ShmemError, IndexError):
    """A PE number, a size or an index is out of range."""


class HeapExhaustedError(ShmemError, MemoryError):
    """The symmetric heap, or the memory of the machine, is too small."""


class DtypeError(ShmemError, TypeError):
    """An element type does not fit the routine or the other argument, or a value does not fit its element type."""


class ArgumentError(ShmemError, ValueError):
    """An argument has the wrong kind, layout or sign."""


class UnreachableError(ShmemError, RuntimeError):
    """The PE exists, but no transport reaches it from here."""


class LaunchError(ShmemError, RuntimeError):
    """The job was started in a way that cannot work."""


class BrokenTeamError(ShmemError, RuntimeError):
    """An exception or a time-out has ended a collective call on some PE. Its team makes no more calls."""


class WaitTimeoutError(ShmemError, TimeoutError):
    """A wait lasted longer than PYSHMEM_WAIT_TIMEOUT."""


for _kind in (ShmemError, *ShmemError.__subclasses__()):
    _kind.__module__ = "pyshmem"  # where users find it, and as tracebacks print it


def refuse(kind: type[ShmemError], routine: str, argument: str, got: str, wants: str) -> NoReturn:
    """Raise ``kind`` with a message of the form that all errors share. What was handled meanwhile is not shown."""
    pe = job.my_pe if job.my_pe >= 0 else "?"
    raise kind(f"{c_name() or routine}: PE {pe}: {argument}: got {got}; expected {wants}") from None


def refuse_state(routine: str, state: str) -> NoReturn:
    """Raise NotInitializedError. state: not initialized, or finalized."""
    raise NotInitializedError(f"{c_name() or routine}: PE ?: {state}: call shmem.init() first") from None


def c_name() -> str | None:
    """Return the C name through which the program has made this call. Only rare calls ask: C calls cost nothing more."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if not module.startswith("pyshmem"):  # the program's own frames, of which there may be many
            return None
        if module == "pyshmem.c_names.management" and function[0] not in "_<":  # its functions lack the prefix
            return f"shmem_{function}"
        name = frame.f_locals.get("name", function) if module.startswith("pyshmem.c_names") else None
        if module == "pyshmem.capi.bridge":  # allocations, by their C names
            name = frame.f_locals.get("routine")
        if isinstance(name, str) and name.startswith("shmem_"):
            return name
        frame = frame.f_back
    return None


def listed(pes: list[int]) -> str:
    """Return a text such as "PE 1", "PEs 1 and 2" or "PEs 1, 2 and 3"."""
    if len(pes) < 2:
        return f"PE {pes[0]}" if pes else "some PE"
    return f"PEs {', '.join(map(str, pes[:-1]))} and {pes[-1]}"


def grouped(said: dict[int, str]) -> dict[str, list[int]]:
    """Return the PEs of which each text is said."""
    groups: dict[str, list[int]] = {}
    for pe, text in said.items():
        groups.setdefault(text, []).append(pe)
    return groups
