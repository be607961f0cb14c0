"""Contexts: which PEs a call's numbers mean, and one ordering domain. Spec: OpenSHMEM 1.6, 9.5."""

from __future__ import annotations

from typing import Any

from pyshmem.host.errors import ArgumentError, refuse
from pyshmem.host.teams import TEAM_WORLD, Team


class Ctx:
    """A context on a team. On CPU heaps every operation is complete when its call returns, so none holds anything back."""

    __slots__ = ("team",)

    def __init__(self, team: Team) -> None:
        self.team = team


def world_pe(routine: str, ctx: Any, pe: int) -> int:
    """The world PE of ``pe`` in the team of ``ctx``. Errors: ArgumentError for no context, OutOfRangeError."""
    check(routine, ctx)
    return ctx.team.world_pe(routine, pe)  # type: ignore[no-any-return]


def check(routine: str, ctx: Any) -> None:
    """Errors: ArgumentError for anything but a context."""
    if not isinstance(ctx, Ctx):
        refuse(ArgumentError, routine, "ctx", type(ctx).__name__, "a Ctx, or None for CTX_DEFAULT")


CTX_DEFAULT = Ctx(TEAM_WORLD)
