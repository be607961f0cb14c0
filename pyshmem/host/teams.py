"""Teams: strided triplets of world PEs with a barrier area of their own. Spec: OpenSHMEM 1.6, 9.4."""

from __future__ import annotations

import numpy as np

from pyshmem.host.errors import ArgumentError, NotInitializedError, OutOfRangeError, refuse
from pyshmem.host.heap import SYSTEM_BYTES, cpu

SYNC_BYTES = 2048  # an epoch and up to 31 rounds of the barrier, a cache line each
SLOTS = SYSTEM_BYTES // SYNC_BYTES


class Team:
    """PEs ``start + i * stride`` of the world, i below ``size``. False while it is no team, as before init."""

    __slots__ = ("area", "me", "name", "pe_stride", "size", "start", "stride")

    def __init__(self, name: str) -> None:
        self.name = name
        self.leave()

    def enter(self, start: int, stride: int, size: int, me: int, slot: int) -> None:
        """Become a team. The barrier area of ``slot`` is the same on all members and nobody else's."""
        self.start, self.stride, self.size, self.me = start, stride, size, me
        self.area = cpu.system + slot * SYNC_BYTES
        self.pe_stride = stride * cpu.stride  # bytes from one member's heap to the next one's

    def leave(self) -> None:
        """Become no team, and equal to every other that is none."""
        self.start = self.stride = self.size = self.area = self.pe_stride = 0
        self.me = -1

    def __bool__(self) -> bool:
        return self.size > 0

    def __repr__(self) -> str:
        return f"<{self.name}: PE {self.me} of {self.size}>" if self else f"<{self.name}: no team>"

    def my_pe(self) -> int:
        """This PE's number in the team, -1 outside it. Spec: 9.4 SHMEM_TEAM_MY_PE."""
        return self.me

    def n_pes(self) -> int:
        """How many PEs the team has, -1 when it is none. Spec: 9.4 SHMEM_TEAM_N_PES."""
        return self.size or -1

    def translate_pe(self, pe: int, team: Team) -> int:
        """The number in ``team`` of this team's ``pe``, -1 where it has none. Spec: 9.4 SHMEM_TEAM_TRANSLATE_PE."""
        if not self or not team or not 0 <= pe < self.size:
            return -1
        index, rest = divmod(self.start + pe * self.stride - team.start, team.stride)
        return index if rest == 0 and 0 <= index < team.size else -1

    def world_pe(self, routine: str, pe: int) -> int:
        """The world PE of this team's ``pe``. Errors: NotInitializedError, OutOfRangeError."""
        if not self:
            refuse(NotInitializedError, routine, "team", f"{self.name} outside init and finalize", "init before it")
        if not isinstance(pe, (int, np.integer)) or not 0 <= pe < self.size:
            refuse(OutOfRangeError, routine, "pe", repr(pe), f"a PE from 0 to {self.size - 1} of {self.name}")
        return self.start + int(pe) * self.stride


TEAM_WORLD = Team("TEAM_WORLD")
TEAM_SHARED = Team("TEAM_SHARED")


def member(routine: str, team: Team | None) -> Team:
    """``team``, or the world for None, once this PE is known to be in it. Errors: NotInitializedError, ArgumentError."""
    if team is None:
        team = TEAM_WORLD
    if not isinstance(team, Team):
        refuse(ArgumentError, routine, "team", type(team).__name__, "a Team, or None for TEAM_WORLD")
    if team.me < 0:
        refuse(NotInitializedError, routine, "team", repr(team), "a team this PE is in; init makes TEAM_WORLD")
    return team
