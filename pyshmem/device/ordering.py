"""fence, quiet and the barriers in kernels. Spec: OpenSHMEM 1.6, 9.9 and 9.11."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import DeviceContext


@jit
def fence(ctx: DeviceContext) -> None:
    """Order the calling program's earlier puts, stores and AMOs before its later ones. Spec: 9.11 SHMEM_FENCE."""
    arch.check_context(ctx, "fence")
    arch.fence(ctx)


@jit
def quiet(ctx: DeviceContext) -> None:
    """Complete all the calling program has started, visible to all PEs; what it reads later is read later.

    Spec: 9.11 SHMEM_QUIET.
    """
    arch.check_context(ctx, "quiet")
    arch.quiet(ctx)


@jit
def pe_quiet(ctx: DeviceContext, target_pes: tl.tensor, npes: tl.tensor) -> None:
    """quiet as far as it concerns the PEs ``target_pes[:npes]`` of ctx's team: here of all.

    target_pes: a pointer in any memory to npes numbers, int32.  npes: a run-time int.
    Errors: pointee, a PE out of range.  Spec: 9.11 SHMEM_PE_QUIET.
    """
    arch.check_pes(ctx, "pe_quiet", target_pes, npes)
    arch.quiet(ctx)


@jit
def barrier_all(ctx: DeviceContext) -> None:
    """quiet, then wait until every PE of ctx's team is here. Entered by exactly one program per PE at a time.

    Order: what the calling programs have stored before is read by all of them after.
    Errors: a wait over PYSHMEM_WAIT_TIMEOUT.  Spec: 9.9 SHMEM_BARRIER_ALL.
    """
    arch.synchronise(ctx, "barrier_all")


@jit
def sync_all(ctx: DeviceContext) -> None:
    """Wait until every PE of ctx's team is here; completes no put. Entered as barrier_all.

    Errors: barrier_all's.  Spec: 9.9 SHMEM_SYNC_ALL.
    """
    arch.synchronise(ctx, "sync_all")
