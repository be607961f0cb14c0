"""Contexts: which PEs a call's numbers mean, and one ordering domain. Spec: OpenSHMEM 1.6, 9.5."""

from __future__ import annotations

from pyshmem.host.teams import TEAM_WORLD, Team


class Ctx:
    """A context on a team. On CPU heaps every operation is complete when its call returns, so none holds anything back."""

    __slots__ = ("team",)

    def __init__(self, team: Team) -> None:
        self.team = team

    def world_pe(self, routine: str, pe: int) -> int:
        """The world PE of the team's ``pe``. Errors: OutOfRangeError."""
        return self.team.world_pe(routine, pe)


CTX_DEFAULT = Ctx(TEAM_WORLD)
