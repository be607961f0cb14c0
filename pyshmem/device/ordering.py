"""fence, quiet and the barriers in kernels. Spec: OpenSHMEM 1.6, 9.9 and 9.11."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.scratch import count_of, programs, slot_of_one
from pyshmem.runtime import comparisons


@jit
def fence(ctx):
    """Order the calling program's earlier puts, stores and AMOs before its later ones. Spec: 9.11 SHMEM_FENCE."""
    arch.check_context(ctx, "fence")
    transport.fence(ctx)


@jit
def quiet(ctx):
    """Complete all the calling program has started, visible to all PEs; what it reads later is read later.

    Spec: 9.11 SHMEM_QUIET.
    """
    arch.check_context(ctx, "quiet")
    transport.quiet(ctx)


@jit
def pe_quiet(ctx, target_pes, npes):
    """quiet as far as it concerns the PEs ``target_pes[:npes]`` of ctx's team: here of all.

    target_pes: a pointer in any memory to npes numbers, int32.  npes: a run-time int.
    Errors: pointee, a PE out of range.  Spec: 9.11 SHMEM_PE_QUIET.
    """
    arch.check_pes(ctx, "pe_quiet", target_pes, npes)
    transport.quiet(ctx)


@jit
def barrier_all(ctx):
    """quiet, then wait until every PE of ctx's team is here. Entered by exactly one program per PE at a time.

    Order: what the calling programs have stored before is read by all of them after.
    Errors: a wait over PYSHMEM_WAIT_TIMEOUT.  Spec: 9.9 SHMEM_BARRIER_ALL.
    """
    arch.check_context(ctx, "barrier_all")
    transport.synchronise(ctx, "barrier_all")


@jit
def sync_all(ctx):
    """Wait until every PE of ctx's team is here; completes no put. Entered as barrier_all.

    Errors: barrier_all's.  Spec: 9.9 SHMEM_SYNC_ALL.
    """
    arch.check_context(ctx, "sync_all")
    transport.synchronise(ctx, "sync_all")


@jit
def barrier_all_grid(ctx):
    """quiet, then wait until every program of the grids of all PEs of ctx's team is here. All of them call it.

    The grids may differ between PEs. All programs of one must run at once: start it by shmem.launch with cooperative=True.
    Order: barrier_all's, of all programs; no other program may be in barrier_all or sync_all of this team meanwhile.
    Errors: barrier_all's; in the interpreter a grid of more than one program.  Spec: 9.9 SHMEM_BARRIER_ALL.
    """
    arch.check_alone(ctx, "barrier_all_grid", programs())
    slot = slot_of_one(ctx, "barrier_all_grid")
    come, released = word_of(slot, 2), word_of(slot, 3)
    transport.fence(ctx)
    before = arch.fetch(ctx, released)
    last = before + tl.cast(programs(), tl.uint64)  # what ``come`` grows to with the last program
    if arch.atomic(ctx, "add", come, tl.cast(1, tl.uint64), None, "acq_rel", "sys") + 1 == last:
        transport.synchronise(ctx, "barrier_all_grid")
        arch.set_signal(ctx, released, last)
    else:
        arch.wait(ctx, "barrier_all_grid", "ctx", released, comparisons.NE, before)


@jit
def word_of(slot, place: tl.constexpr):
    return count_of(slot, place).to(tl.pointer_type(tl.uint64), bitcast=True)
