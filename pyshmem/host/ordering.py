"""fence, quiet and the barriers. Spec: OpenSHMEM 1.6, 9.11 (memory ordering) and 9.9 (barrier, sync)."""

from __future__ import annotations

from collections.abc import Iterable

from pyshmem.base.job import job
from pyshmem.host.contexts import Ctx, is_usable
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.memory.arguments import require_init
from pyshmem.native import _native
from pyshmem.transport.near_or_far import complete, complete_on, pending

__all__ = ["barrier_all", "fence", "pe_quiet", "quiet", "sync", "sync_all"]


def fence(ctx: Ctx | None = None) -> None:
    """Order this PE's earlier puts, AMOs, signals and stores before its later ones, for each PE. Completes nothing.

    ctx: None is CTX_DEFAULT.
    Errors: NotInitializedError, ArgumentError.
    Spec: 9.11 SHMEM_FENCE.
    """
    if (ctx is None and job.inits) or is_usable("fence", ctx):
        _native.fence()  # near_or_far.order, without its call
        for each in pending:
            each.order()


def quiet(ctx: Ctx | None = None) -> None:
    """Complete all operations of this PE, including non-blocking gets and AMOs, and make them visible to all PEs.

    ctx: None is CTX_DEFAULT.
    Errors: NotInitializedError, ArgumentError.
    Spec: 9.11 SHMEM_QUIET.
    """
    if (ctx is None and job.inits) or is_usable("quiet", ctx):
        complete(ctx)


def pe_quiet(pes: Iterable[int], ctx: Ctx | None = None) -> None:
    """Complete all operations of this PE on ``pes``, and those on all other PEs of its node.

    pes: PEs of ctx's team.
    ctx: None is CTX_DEFAULT, on TEAM_WORLD.
    Errors: NotInitializedError, ArgumentError, OutOfRangeError.
    Spec: 9.11 SHMEM_PE_QUIET.
    """
    if not is_usable("pe_quiet", ctx):
        return
    team = TEAM_WORLD if ctx is None else ctx.team
    complete_on([team._world_pe("pe_quiet", pe) for pe in pes], ctx)


def barrier_all() -> None:
    """Call quiet, then wait until every PE of TEAM_WORLD has called barrier_all.

    Errors: NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_BARRIER_ALL.
    """
    if not job.inits:
        require_init("barrier_all")
    for each in pending:
        each.settle()
    TEAM_WORLD.meeting.sync("barrier_all")  # includes a full memory fence


def sync_all() -> None:
    """Wait until every PE of TEAM_WORLD has called sync_all. Orders plain stores; does not complete puts.

    Errors: NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_SYNC_ALL.
    """
    if not job.inits:
        require_init("sync_all")
    TEAM_WORLD.meeting.sync("sync_all")


def sync(team: Team | None = None) -> None:
    """Wait until every PE of ``team`` has called sync. Orders plain stores; does not complete puts.

    team: a team of this PE; None is TEAM_WORLD.
    Errors: ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_TEAM_SYNC.
    """
    member("sync", team).meeting.sync("sync")
