"""Steps that PEs take together: what fails on one PE is raised on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyshmem.runtime.errors import ShmemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

_T = TypeVar("_T")


class DescriptorError(OSError):
    """A file descriptor could not be passed to another process."""


class together:
    """``with together(comm):`` takes a step on all PEs of ``comm``. A failure on another PE is raised here in its words.

    Errors: this PE's own, else DescriptorError or OSError. The step itself must not communicate after it may have failed.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        mine = None if error is None else (isinstance(error, DescriptorError), str(error))
        failures = [(pe, failure) for pe, failure in enumerate(self._comm.allgather(mine)) if failure]
        if error is None and failures:
            pe, (descriptor, words) = failures[0]
            raise (DescriptorError if descriptor else OSError)(0, f"on PE {pe}: {words}")


def gather(comm: MPI.Intracomm, read: Callable[[], _T]) -> list[_T]:
    """What ``read`` returns on every PE of ``comm``. Errors: a ShmemError that ``read`` raises on any PE, on all of them."""
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
