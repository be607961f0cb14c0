"""fence, quiet and the barriers. Spec: OpenSHMEM 1.6, 9.11 (memory ordering) and 9.9 (barrier, sync)."""

from __future__ import annotations

from collections.abc import Iterable

from pyshmem.host.contexts import Ctx, is_usable
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.runtime import _native
from pyshmem.runtime.arguments import require_init
from pyshmem.runtime.job import job
from pyshmem.transport.routes import complete, pending


def fence(ctx: Ctx | None = None) -> None:
    """Order this PE's earlier puts, AMOs, put_signals and stores before its later ones, PE by PE. Completes nothing.

    Errors: NotInitializedError. Spec: 9.11 SHMEM_FENCE.
    """
    if (ctx is None and job.inits) or is_usable("fence", ctx):
        _native.fence()  # routes.order, without its call
        for each in pending:
            each.order()


def quiet(ctx: Ctx | None = None) -> None:
    """Complete all this PE has started, non-blocking gets and AMOs included, visible to all PEs.

    Errors: NotInitializedError. Spec: 9.11 SHMEM_QUIET.
    """
    if (ctx is None and job.inits) or is_usable("quiet", ctx):
        complete(ctx)


def pe_quiet(pes: Iterable[int], ctx: Ctx | None = None) -> None:
    """quiet as far as it concerns the PEs ``pes`` of ctx's team: here of all. Errors: quiet's, OutOfRangeError.

    Spec: 9.11 SHMEM_PE_QUIET.
    """
    if not is_usable("pe_quiet", ctx):
        return
    team = TEAM_WORLD if ctx is None else ctx.team
    for pe in pes:
        team.world_pe("pe_quiet", pe)
    quiet(ctx)


def barrier_all() -> None:
    """quiet, then wait until every PE of the world has come here. Errors: NotInitializedError, WaitTimeoutError.

    Spec: 9.9 SHMEM_BARRIER_ALL.
    """
    if not job.inits:
        require_init("barrier_all")
    for each in pending:
        each.settle()
    TEAM_WORLD.meeting.sync("barrier_all")  # a full fence goes with it


def sync_all() -> None:
    """Wait until every PE of the world has come here; orders plain stores, completes no put. Spec: 9.9 SHMEM_SYNC_ALL."""
    if not job.inits:
        require_init("sync_all")
    TEAM_WORLD.meeting.sync("sync_all")


def sync(team: Team | None = None) -> None:
    """Wait until every PE of ``team`` has come here. Errors: ArgumentError outside it. Spec: 9.9 SHMEM_TEAM_SYNC."""
    member("sync", team).meeting.sync("sync")
