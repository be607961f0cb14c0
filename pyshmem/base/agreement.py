"""Steps that PEs take together: if a step fails on one PE, it raises an error on all PEs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyshmem.base.errors import ShmemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyshmem.base.bootstrap import Comm

_T = TypeVar("_T")


class DescriptorError(OSError):
    """A file descriptor could not be passed to another process."""


class together:
    """``with together(comm):`` takes a step on all PEs of ``comm``. If it fails on one PE, it raises an error on all.

    The step must not communicate after a statement that may fail.
    Errors: the error of this PE, or DescriptorError or OSError with the message of the first PE that failed.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        mine = None if error is None else (isinstance(error, DescriptorError), str(error))
        failures = [(pe, failure) for pe, failure in enumerate(self._comm.allgather(mine)) if failure]
        if error is None and failures:
            pe, (descriptor, message) = failures[0]
            raise (DescriptorError if descriptor else OSError)(0, f"on PE {pe}: {message}")


def gather(comm: Comm, read: Callable[[], _T]) -> list[_T]:
    """Return the results of ``read`` on all PEs of ``comm``.

    Errors: if ``read`` raises a ShmemError on any PE, it is raised on all PEs.
    """
    mine: _T | ShmemError
    try:
        mine = read()
    except ShmemError as error:
        mine = error
    every = comm.allgather(mine)
    for answer in every:
        if isinstance(answer, ShmemError):
            raise mine if isinstance(mine, ShmemError) else answer
    return every
