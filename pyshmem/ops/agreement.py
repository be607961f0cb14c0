"""What the PEs of a team compare before they make a plan: that all of them make the same one."""

from __future__ import annotations

import hashlib

import torch

from pyshmem.host.teams import Team, require_one_node
from pyshmem.runtime.errors import ArgumentError, ShmemError, WaitTimeoutError, refuse
from pyshmem.runtime.heap import default

# Bytes that a PE shares: whether it refuses, whether its operands are aligned, a digest, and the beginning of the text.
_NOTE, _REFUSES, _ALIGNED, _TEXT = 256, 0, 1, 34


def require_no_capture(routine: str) -> None:
    """Errors: ArgumentError if the current stream captures a graph."""
    if default().streams and torch.cuda.is_current_stream_capturing():
        wants = "a call outside the capture before it: the first call of a kind makes a plan, which allocates memory"
        refuse(ArgumentError, routine, "stream", "a current stream that captures a graph", wants)


def require_near(routine: str, team: Team) -> None:
    """As require_one_node, for operators that in CPU memory have a schedule without tiles. Errors: UnreachableError."""
    if default().streams:
        require_one_node(routine, team)


def require_alike(
    routine: str, team: Team, argument: str, text: str, wants: str, error: ShmemError | None = None,
    aligned: bool = True,
) -> bool:  # fmt: skip
    """Compare the ``text`` that describes a call on all PEs of ``team``. Collective.

    error: why this PE refuses the call; all others refuse it then too.
    aligned: whether this PE's operands are. Returns: whether those of all PEs are.
    Errors: ``error``; ArgumentError, on all PEs, for a refusal of another PE or texts that differ.
    """
    raw = text.encode()
    note = bytes([error is not None, aligned]) + hashlib.sha256(raw).digest() + raw[: _NOTE - _TEXT]
    try:
        notes = team.meeting.share(routine, note.ljust(_NOTE))
    except WaitTimeoutError:  # the others have made no such call, or found their plan ready
        if error is not None:
            raise error from None
        raise
    if error is not None:
        raise error
    texts = [each[_TEXT:].decode(errors="replace").rstrip() for each in notes]
    for pe, each in enumerate(notes):
        if each[_REFUSES]:
            accepted = f"arguments that PE accepts too: {texts[pe]}"
            refuse(ArgumentError, routine, "team", f"a refusal of PE {pe} of the team", accepted)
        if each[_ALIGNED + 1 : _TEXT] != notes[0][_ALIGNED + 1 : _TEXT]:
            refuse(ArgumentError, routine, argument, f"{texts[0]} on PE 0 and {texts[pe]} on PE {pe}", wants)
    return all(each[_ALIGNED] for each in notes)
