"""What the PEs of a team must agree on before they make a plan: that they make the same one, and where its memory lies."""

from __future__ import annotations

import hashlib
from typing import Any

from pyshmem.ops.problem import Problem
from pyshmem.runtime.errors import ArgumentError, refuse

_NOTE = 256


def require_same(problem: Problem) -> None:
    """Refuse, on all PEs, problems that differ between the PEs of the team. Collective. Errors: ArgumentError."""
    epilogue = problem.options.epilogue
    name = None if epilogue is None else epilogue.fn.__qualname__
    options = problem.options._replace(epilogue=name)
    text = (
        f"{problem.operator} {problem.split} of {problem.M} x {problem.N} x {problem.K} in {problem.dtype}, {options}"
    )
    packed = hashlib.sha256(text.encode()).digest() + text.encode()[: _NOTE - 32].ljust(_NOTE - 32)
    notes = problem.team.meeting.share(problem.operator, packed)
    for pe, note in enumerate(notes):
        if note[:32] != notes[0][:32]:
            first, other = (each[32:].decode(errors="replace").rstrip() for each in (notes[0], note))
            wants = f"the same call on all PEs of the team (size= gives a length that {problem.n_pes} does not divide)"
            refuse(ArgumentError, problem.operator, "a", f"{first} on PE 0 and {other} on PE {pe}", wants)


def lowest_common_gap(taken: list[list[tuple[int, int]]], nbytes: int, room: int) -> Any:
    """Return the lowest start of ``nbytes`` that no list of (start, end) has taken, or None if there is none below room."""
    start = 0
    for first, last in sorted(each for pe in taken for each in pe):
        if first - start >= nbytes:
            break
        start = max(start, last)
    return start if start + nbytes <= room else None
