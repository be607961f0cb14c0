"""What the PEs of a team compare before they make a plan: that all of them make the same one."""

from __future__ import annotations

import hashlib

import torch

from pyshmem.base.errors import ArgumentError, ShmemError, WaitTimeoutError, refuse
from pyshmem.host.teams import Team, require_one_node
from pyshmem.memory.heap import default

# Bytes that a PE shares: whether it refuses, a digest of the text, and as much of the text as there is room for.
_RECORD, _REFUSES, _TEXT = 256, 0, 33


def require_no_capture(routine: str) -> None:
    """Errors: ArgumentError if the current stream captures a graph."""
    if default().streams and torch.cuda.is_current_stream_capturing():
        wants = (
            "such a call before the capture: the first call of a kind, and of a layout, allocates memory and compiles"
        )
        refuse(ArgumentError, routine, "stream", "a current stream that captures a graph", wants)


def require_near(routine: str, team: Team) -> None:
    """Refuse a team over several nodes, except in CPU memory, where a schedule needs no tiles. Errors: UnreachableError."""
    if default().streams:
        require_one_node(routine, team)


def require_alike(
    routine: str, team: Team, argument: str, text: str, wants: str, error: ShmemError | None = None
) -> None:
    """Compare the ``text`` that describes a call on all PEs of ``team``. Collective.

    text: of lines "argument: what", of which an error names the first that differs; a single line is compared as a whole.
    error: why this PE refuses the call; all others refuse it then too.
    Errors: ``error``; ArgumentError, on all PEs, for a refusal of another PE or texts that differ.
    """
    raw = text.encode()
    record = bytes([error is not None]) + hashlib.sha256(raw).digest() + raw[: _RECORD - _TEXT]
    try:
        records = team.meeting.share(routine, record.ljust(_RECORD))
    except WaitTimeoutError:  # the others have made no such call, or found their plan ready
        if error is not None:
            raise error from None
        raise
    if error is not None:
        raise error
    texts = [each[_TEXT:].decode(errors="replace").rstrip() for each in records]
    for pe, each in enumerate(records):
        if each[_REFUSES]:
            accepted = f"arguments that this PE also accepts: {texts[pe]}"
            refuse(ArgumentError, routine, "team", f"a refusal of PE {pe} of the team", accepted)
        if each[_REFUSES + 1 : _TEXT] != records[0][_REFUSES + 1 : _TEXT]:
            refuse(ArgumentError, routine, *_difference(argument, texts[0], texts[pe], pe), wants)


def _difference(argument: str, first: str, other: str, pe: int) -> tuple[str, str]:
    """Return the argument in which PE 0 and ``pe`` differ, and what each has. argument: its name, for texts of a line."""
    if "\n" not in first or "\n" not in other:
        return argument, f"{first} on PE 0 and {other} on PE {pe}"
    for one, two in zip(first.split("\n"), other.split("\n"), strict=False):
        name, _, value = one.partition(": ")
        its_name, _, its = two.partition(": ")
        if one != two and name == its_name:
            number, _, unit = value.partition(" ")
            if number.isdecimal() and its.endswith(f" {unit}"):  # 8 rows and 11
                its = its.partition(" ")[0]
            return name, f"{value} on PE 0 and {its} on PE {pe}"
    return argument, f"other arguments on PE {pe} than on PE 0"


def on_all(routine: str, team: Team, condition: bool) -> bool:
    """Return whether the condition holds on all PEs of ``team``. Collective."""
    return all(record[0] for record in team.meeting.share(routine, bytes([condition])))
