"""fence, quiet and the barriers. Spec: OpenSHMEM 1.6, 9.11 (memory ordering) and 9.9 (barrier, sync)."""

from __future__ import annotations

from collections.abc import Iterable

from pyshmem.host.contexts import Ctx, check
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.runtime import _native
from pyshmem.runtime.errors import NotInitializedError, refuse, refuse_timeout
from pyshmem.runtime.heap import heaps
from pyshmem.runtime.job import job


def fence(ctx: Ctx | None = None) -> None:
    """Order this PE's earlier puts, AMOs, signals and stores before its later ones, for each PE. Completes nothing.

    ctx: None is CTX_DEFAULT.
    Errors: NotInitializedError, ArgumentError.
    Spec: 9.11 SHMEM_FENCE.
    """
    if not _usable("fence", ctx):
        return
    _native.fence()
    if "cuda" in heaps:
        heaps["cuda"].order()


def quiet(ctx: Ctx | None = None) -> None:
    """Complete all operations of this PE, including non-blocking gets and AMOs, and make them visible to all PEs.

    ctx: None is CTX_DEFAULT.
    Errors: NotInitializedError, ArgumentError.
    Spec: 9.11 SHMEM_QUIET.
    """
    if not _usable("quiet", ctx):
        return
    complete(ctx)


def pe_quiet(pes: Iterable[int], ctx: Ctx | None = None) -> None:
    """Complete all operations of this PE on ``pes``; pyshmem completes those on all PEs.

    pes: PEs of ctx's team.
    ctx: None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Errors: NotInitializedError, ArgumentError, OutOfRangeError.
    Spec: 9.11 SHMEM_PE_QUIET.
    """
    if not _usable("pe_quiet", ctx):
        return
    team = TEAM_WORLD if ctx is None else ctx.team
    for pe in pes:
        team.world_pe("pe_quiet", pe)
    quiet(ctx)


def _usable(routine: str, ctx: Ctx | None) -> bool:
    """Whether there is something to order: not on CTX_INVALID. Errors: NotInitializedError, ArgumentError."""
    if not job.inits:
        refuse(NotInitializedError, routine, "state", "no init yet", "init before it")
    return ctx is None or check(routine, ctx)


def complete(ctx: Ctx | None = None) -> None:
    """What quiet does, on every heap."""
    for heap in heaps.values():
        heap.settle(ctx)


def barrier_all() -> None:
    """Call quiet, then wait until every PE of TEAM_WORLD has called barrier_all.

    Errors: NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_BARRIER_ALL.
    """
    if "cuda" in heaps:
        complete()
    synchronise("barrier_all", TEAM_WORLD)  # a full fence goes with it


def sync_all() -> None:
    """Wait until every PE of TEAM_WORLD has called sync_all. Orders plain stores; does not complete puts.

    Errors: NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_SYNC_ALL.
    """
    synchronise("sync_all", TEAM_WORLD)


def sync(team: Team | None = None) -> None:
    """Wait until every PE of ``team`` has called sync. Orders plain stores; does not complete puts.

    team: a team of this PE; None is TEAM_WORLD.
    Errors: ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_TEAM_SYNC.
    """
    synchronise("sync", member("sync", team))


def synchronise(routine: str, team: Team) -> None:
    """The team's barrier. A full fence goes with it, and on CPU heaps that is quiet too."""
    if not team.size:
        refuse(NotInitializedError, routine, "state", "no init yet", "init before it")
    try:
        _native.sync(team.area, team.pe_stride, team.me, team.size, job.timeout, job.spins)
    except TimeoutError:
        refuse_timeout(routine, "team", f"no word from some PE of {team.name}", "all of them to call it")
