"""How a team's scratch is divided into slots for programs; pyshmem.device.scratch says what is in a slot."""

from __future__ import annotations

MOST_PROGRAMS = 256
LEAST_PIECE = 64  # bytes, for which a larger team has fewer slots
PIECES = 8  # of each member: four areas, two turns
HEAD, ARRAYS = 64, 8 * 8  # bytes of a slot before its arrays, and those of all arrays for each member


def divide(scratch: int, nbytes: int, n_pes: int) -> dict[str, int]:
    """The device context's fields for ``nbytes`` of scratch at that address. No slot where they do not suffice for one."""
    head = HEAD + ARRAYS * n_pes
    programs = min(MOST_PROGRAMS, nbytes // (head + PIECES * n_pes * LEAST_PIECE))
    slot = nbytes // max(programs, 1) // 64 * 64
    piece = max(slot - head, 0) // (PIECES * n_pes) // 16 * 16
    return {"scratch": scratch, "slot": slot, "programs": programs, "piece": piece}
