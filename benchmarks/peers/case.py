"""The interface of a peer's module: a Library, which returns for each row a Case with a statement to time and a check."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

import numpy as np

Step = Callable[[], object]
FLOOD = 1000  # puts of a flood
WINDOW = 64  # puts without completion of a stream of messages


def nothing() -> None:
    """Do nothing."""


class Case(NamedTuple):
    """``statement`` is one step, as users write it, with ``names`` as its variables. The PEs of ``pes`` do it, None: all.

    ``check`` is called on all PEs before the timing, with a function that does one step on the PEs that do it and nothing
    on others. It returns what this PE found wrong, or "": by raising it would leave the others in a barrier.
    ``ceiling`` moves the same bytes between the same memory by the fastest means outside the library; it is timed beside.
    ``meanwhile`` is what the other PEs do while these are timed, and ``release``, called by the timed PEs, ends it.
    """

    statement: str
    names: dict[str, Any]
    check: Callable[[Step], str]
    pes: Collection[int] | None = (0,)
    ceiling: str = ""
    meanwhile: Step = nothing
    release: Step = nothing
    timer: Callable[[], float] = time.perf_counter


class Library(Protocol):
    """A library on this PE. Made without arguments by the class Library of the peer's module, which joins the job."""

    me: int
    notes: dict[str, str]  # operation: the substitute that is timed if the library lacks the call

    def facts(self) -> dict[str, str]:
        """Versions and settings, for the reader of the table."""

    def case(self, operation: str, nbytes: int, *parameters: Any) -> Case | None:
        """Return the case for a row, or None if the library has no such call. Collective."""

    def barrier(self) -> None:
        """Call the library's barrier over all PEs. Inactive PEs wait in it, so that the library can make progress."""

    def forget(self) -> None:
        """Free the memory of the last case. Collective."""

    def close(self) -> None:
        """Leave the job. Collective; may end the process."""


def pattern(pe: int, nbytes: int) -> np.ndarray:
    """Return int64 values that name the PE."""
    return np.arange(nbytes // 8, dtype=np.int64) + 1000 * (pe + 1)


def differ(me: int, seen: np.ndarray, expected: np.ndarray | int) -> str:
    """Return the errors in ``seen``, or ""."""
    places = np.flatnonzero(seen != expected)
    if not places.size:
        return ""
    wanted = np.broadcast_to(expected, seen.shape)[places[0]]
    return f"PE {me} has {seen[places[0]]}, not {wanted}, in place {places[0]}; "
