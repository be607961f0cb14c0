"""Contexts: the team that numbers the PEs of a call, and an ordering domain. Spec: OpenSHMEM 1.6, 9.5.

In CPU memory every operation is complete when its call returns, so a context has no pending operations there; on a GPU heap
each context has its own stream. The options are promises of the program; pyshmem does not use them.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_INVALID, TEAM_WORLD, Team, member, refuse_team
from pyshmem.memory.arguments import require_init
from pyshmem.transport import near_or_far

__all__ = ["CTX", "CTX_DEFAULT", "CTX_INVALID", "SESSION", "Ctx", "pcontrol"]


class CTX(IntFlag):
    """Options of a context: promises that the program makes. Spec: 9.5 SHMEM_CTX_CREATE."""

    SERIALIZED = 1  # used by one thread at a time
    PRIVATE = 2  # used only by the thread that created it
    NOSTORE = 4  # its fence and quiet need not order plain stores


class SESSION(IntFlag):
    """Options of a session. Spec: 9.5 SHMEM_CTX_SESSION_START."""

    BATCH = 1


class Ctx:
    """A context on a team.

    It is false before init, after destroy, after the end of its team, and if it could not be created.
    """

    __slots__ = ("__weakref__", "generation", "options", "team")

    def __init__(self, team: Team, options: CTX = CTX(0)) -> None:  # noqa: B008
        self.team = team
        self.options = options
        self.generation = job.generation

    def __bool__(self) -> bool:
        return self.team.size > 0 and (self.generation == job.generation or self is CTX_DEFAULT)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Ctx) and not self and not other)

    def __hash__(self) -> int:
        return hash(Ctx)  # a context may end, and then equals all that have ended

    def __enter__(self) -> Ctx:
        return self

    def __exit__(self, *exception: object) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"<Ctx on {self.team!r}>" if self else "<no context>"

    @staticmethod
    def create(options: int = 0, team: Team | None = None) -> Ctx:
        """Return a new context on ``team``. Local. If team is no team, the result is CTX_INVALID, which is false.

        options: 0, or members of CTX combined with ``|``.
        team: a team of this PE; None is TEAM_WORLD.
        Errors: ArgumentError, NotInitializedError.
        Spec: 9.5 SHMEM_CTX_CREATE.
        """
        wishes = _flags("create", CTX, options)
        if isinstance(team, Team) and not team and job.inits:
            return CTX_INVALID
        return Ctx(member("create", team), wishes)

    def destroy(self) -> None:
        """Call quiet on the context, then end it. Does nothing for a context that has ended.

        Errors: ArgumentError for CTX_DEFAULT.
        Spec: 9.5 SHMEM_CTX_DESTROY.
        """
        if self is CTX_DEFAULT:
            refuse(ArgumentError, "destroy", "ctx", "CTX_DEFAULT", "a context that create made")
        self.quiet()
        self.team = TEAM_INVALID

    def get_team(self) -> Team:
        """Return the team of the context, or TEAM_INVALID if the context has ended. Spec: 9.5 SHMEM_CTX_GET_TEAM."""
        return self.team if self else TEAM_INVALID

    def fence(self) -> None:
        """Order the earlier operations of the context before its later ones, for each PE. Errors: NotInitializedError."""
        if is_usable("fence", self):
            near_or_far.order()

    def quiet(self) -> None:
        """Complete all operations of the context. Errors: NotInitializedError."""
        if is_usable("quiet", self):
            near_or_far.complete(self)

    def session_start(self, options: int = 0) -> None:
        """Declare that a phase of many operations begins; a hint, which pyshmem ignores.

        options: 0, or members of SESSION combined with ``|``.
        Errors: ArgumentError.
        Spec: 9.5 SHMEM_CTX_SESSION_START.
        """
        _flags("session_start", SESSION, options)

    def session_stop(self) -> None:
        """Declare that the phase that session_start began is over. Spec: 9.5 SHMEM_CTX_SESSION_STOP."""


def pcontrol(level: int) -> None:
    """Set the ``level`` of a profiler; pyshmem has none and ignores it. Errors: ArgumentError. Spec: 10 SHMEM_PCONTROL."""
    if isinstance(level, bool) or not isinstance(level, int):
        refuse(ArgumentError, "pcontrol", "level", repr(level), "an int")


def world_pe(routine: str, ctx: Any, pe: int) -> int:
    """The world PE of ``pe`` in the team of ``ctx``.

    Errors: NotInitializedError, ArgumentError if ctx is not usable, OutOfRangeError.
    """
    if type(ctx) is Ctx and ctx.team.size > 0 and ctx.generation == job.generation:  # the usual case
        return ctx.team._world_pe(routine, pe)
    if not check(routine, ctx):
        if not job.inits:
            refuse_team(routine, ctx.team)
        refuse(
            ArgumentError,
            routine,
            "ctx",
            repr(ctx),
            "a context that is not destroyed, nor its team, nor of an earlier init",
        )
    return ctx.team._world_pe(routine, pe)  # type: ignore[no-any-return]


def check(routine: str, ctx: Any) -> bool:
    """Whether the context ``ctx`` is usable now. Errors: ArgumentError if it is not a Ctx."""
    if not isinstance(ctx, Ctx):
        refuse(ArgumentError, routine, "ctx", type(ctx).__name__, "a Ctx, or None for CTX_DEFAULT")
    return bool(ctx)


def is_usable(routine: str, ctx: Ctx | None) -> bool:
    """Whether a fence or quiet of ``ctx`` has something to order: not on CTX_INVALID.

    Errors: NotInitializedError, ArgumentError.
    """
    if not job.inits:
        require_init(routine)
    return ctx is None or check(routine, ctx)


def _flags(routine: str, kind: Any, options: Any) -> Any:
    """``options`` as flags of ``kind``. Errors: ArgumentError."""
    known = sum(kind)
    if isinstance(options, bool) or not isinstance(options, int) or options & ~known:
        names = ", ".join(f"{kind.__name__}.{flag.name}" for flag in kind)
        refuse(ArgumentError, routine, "options", repr(options), f"0 or {names}, or more of them")
    return kind(options)


CTX_DEFAULT = Ctx(TEAM_WORLD)
CTX_INVALID = Ctx(TEAM_INVALID)
