"""What a peer's module is asked for: a Library, and of it, for a row, a Case: what to time and how to check it first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

Step = Callable[[], object]


class Case(NamedTuple):
    """``statement`` is one step, as users write it, with ``names`` as its variables. PEs 0 to ``pes`` - 1 do it, None: all.

    ``check`` is called on all PEs before the timing, with a function that does one step on the PEs that do it and nothing
    on others. It returns what this PE found wrong, or "": by raising it would leave the others in a barrier.
    ``ceiling`` moves the same bytes between the same memory by the fastest means outside the library; it is timed beside.
    """

    statement: str
    names: dict[str, Any]
    check: Callable[[Step], str]
    pes: int | None = 1
    ceiling: str = ""


class Library(Protocol):
    """A library on this PE. Made without arguments by the class Library of the peer's module, which joins the job."""

    me: int
    notes: dict[str, str]  # operation: what is timed where the library lacks the call itself

    def facts(self) -> dict[str, str]:
        """Versions and settings, for the reader of the table."""

    def case(self, operation: str, nbytes: int, *parameters: Any) -> Case | None:
        """The case for a row, None where the library has no such call. Collective."""

    def barrier(self) -> None:
        """The library's own barrier over all PEs. Those that stand by wait in it, so that it may progress."""

    def forget(self) -> None:
        """Free what the last case used. Collective."""

    def close(self) -> None:
        """Leave the job. Collective; may end the process."""
