"""How a team's scratch is divided into slots for programs; pyshmem.device.scratch says what is in a slot."""

from __future__ import annotations

MOST_PROGRAMS = 256
LEAST_PIECE = 256  # bytes, for which a larger team has fewer slots
PIECES = 8  # of each member: four areas, two turns
HEAD, ARRAYS = 64, 11  # bytes of a slot before its arrays of a word for each member, and how many those are


def divide(scratch: int, nbytes: int, n_pes: int) -> dict[str, int]:
    """The device context's fields for ``nbytes`` of scratch at that address.

    Before the slots of ``programs`` is one without areas, for calls by one program; -1 where there is no room even for it.
    """
    head = -(-(HEAD + 8 * ARRAYS * n_pes) // 64) * 64
    room = nbytes - head
    programs = min(MOST_PROGRAMS, room // (head + PIECES * n_pes * LEAST_PIECE)) if room >= 0 else -1
    slot = max(room, 0) // max(programs, 1) // 64 * 64
    piece = max(slot - head, 0) // (PIECES * n_pes) // 16 * 16
    return {"scratch": scratch, "slot": slot, "programs": programs, "piece": piece}


def power_below(nbytes: int) -> int:
    """The greatest power of two that is not more, 0 for 0."""
    return 1 << nbytes.bit_length() - 1 if nbytes else 0
