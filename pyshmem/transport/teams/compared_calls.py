"""In debug mode the members of a team compare what they call. If they differ, all raise an error instead of waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pyshmem.base import layout
from pyshmem.base.errors import ArgumentError, OutOfRangeError, grouped, listed, refuse
from pyshmem.diagnosis.host_timeouts import site
from pyshmem.memory.arguments import integer_of

_NOTE = layout.number("NOTE")  # the most bytes that share passes


class Watched:
    """A meeting that compares the calls of the members before each. It has the methods and fields of the meeting inside."""

    def __init__(self, meeting: Any) -> None:
        self._meeting = meeting
        self._compared = ""  # the routine whose quick form has refused: its other form follows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meeting, name)

    def compare(self, routine: str, detail: str = "") -> None:
        """Check that all members call ``routine`` with the same ``detail``. Collective over the team.

        Errors: ArgumentError for another routine, OutOfRangeError for another detail, on all members; WaitTimeoutError.
        """
        self._compared = ""
        call = f"{routine} {detail}".strip()
        place = site()  # "" in a program in C
        note = f"{call}\n{f' at {place[-100:]}' if place else ''}".encode()[:_NOTE].ljust(_NOTE)
        notes = [each.decode(errors="replace").rstrip() for each in self._meeting.share(routine, note)]
        callers = grouped(dict(enumerate(each.partition("\n")[0] for each in notes)))
        if len(callers) > 1:
            kind = ArgumentError if len({each.split()[0] for each in callers}) > 1 else OutOfRangeError
            calls = [f"{each}{notes[pes[0]].partition(chr(10))[2]} on {listed(pes)}" for each, pes in callers.items()]
            wants = f"the same call on all PEs of {self._meeting.name}"
            refuse(kind, routine, "call", " and ".join(calls), wants)

    def sync(self, routine: str, *call: Any) -> None:
        self.compare(routine)
        self._meeting.sync(routine, *call)

    def share(self, routine: str, note: bytes, *call: Any) -> list[bytes]:
        self.compare(routine)
        notes: list[bytes] = self._meeting.share(routine, note, *call)
        return notes

    def quick(self, routine: str, call: int, root: Any, target: Any, source: Any, size: Any) -> int:
        told = f"root {integer_of(root)}, " if routine == "broadcast" else ""
        self.compare_arrays(routine, source, size, told)
        left: int = self._meeting.quick(routine, call, root, target, source, size)
        self._compared = routine if left else ""
        return left

    def compare_arrays(self, routine: str, source: Any, size: Any, root: str = "") -> None:
        self.compare(routine, root + _elements(source, size))

    def broadcast(self, routine: str, *arguments: Any) -> None:
        self._compare_once(routine)
        self._meeting.broadcast(routine, *arguments)

    def scatter(self, routine: str, *arguments: Any) -> None:
        self._compare_once(routine)
        self._meeting.scatter(routine, *arguments)

    def fold(self, routine: str, *arguments: Any) -> None:
        self._compare_once(routine)
        self._meeting.fold(routine, *arguments)

    def _compare_once(self, routine: str) -> None:
        if self._compared != routine:
            self.compare(routine)
        self._compared = ""


def _elements(source: Any, size: Any) -> str:
    """What a member passes, such as "size 8, int64": it must be the same on all."""
    held = source.numel() if isinstance(source, torch.Tensor) else np.size(source)
    dtype = str(getattr(source, "dtype", "?")).removeprefix("torch.")
    return f"size {held if size is None else integer_of(size)}, {dtype}"
