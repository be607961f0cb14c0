"""fence, quiet and the barriers in kernels. Spec: OpenSHMEM 1.6, 9.9 and 9.11."""

from __future__ import annotations

import triton.language as tl

from pyshmem.base import comparisons
from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.collectives.scratch import count_of, programs, slot_of_one


@jit
def fence(ctx):
    """Order the calling program's earlier puts, stores and AMOs before its later ones, to each PE.

    ctx: a device context.  Errors: ArgumentError for what is no device context.  Spec: OpenSHMEM 1.6, 9.11 SHMEM_FENCE.
    """
    arch.check_context(ctx, "fence")
    event = arch.begin_call(ctx, "fence")
    transport.fence(ctx)
    arch.end_event(ctx, event)


@jit
def quiet(ctx):
    """Complete everything that the calling program has started. All PEs see it, and later loads come after it.

    ctx: a device context.  Errors: ArgumentError for what is no device context.  Spec: OpenSHMEM 1.6, 9.11 SHMEM_QUIET.
    """
    arch.check_context(ctx, "quiet")
    complete(ctx, "quiet")


@jit
def pe_quiet(ctx, target_pes, npes):
    """Complete what the calling program has started to the PEs ``target_pes[:npes]``; at present, to all PEs.

    ctx: a device context; the PEs count in its team.
    target_pes: a pointer to int32, in any memory.  npes: an int.
    Errors: DtypeError and ArgumentError for operands of a wrong type; OutOfRangeError for a PE in interpreted kernels.
    Spec: OpenSHMEM 1.6, 9.11 SHMEM_PE_QUIET.
    """
    arch.check_pes(ctx, "pe_quiet", target_pes, npes)
    complete(ctx, "pe_quiet")


@jit
def complete(ctx, routine: tl.constexpr):
    """quiet, in the name of ``routine``."""
    event = arch.begin_call(ctx, routine)
    transport.quiet(ctx)
    arch.end_event(ctx, event)


@jit
def barrier_all(ctx):
    """Complete everything that the calling program has started, and wait until every PE of the team has called this.

    ctx: a device context. Exactly one program of each PE calls barrier_all or sync_all of a team at a time.
    Order: what the calling programs stored before it, all of them read after it.
    Errors: ArgumentError for what is no device context; WaitTimeoutError, raised by the next host call, where the wait takes
        longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: OpenSHMEM 1.6, 9.9 SHMEM_BARRIER_ALL.
    """
    meet(ctx, "barrier_all")


@jit
def sync_all(ctx):
    """Wait until every PE of the team has called this. It does not complete puts.

    ctx: a device context. Exactly one program of each PE calls barrier_all or sync_all of a team at a time.
    Errors: ArgumentError for what is no device context; WaitTimeoutError, raised by the next host call, where the wait takes
        longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: OpenSHMEM 1.6, 9.9 SHMEM_SYNC_ALL.
    """
    meet(ctx, "sync_all")


@jit
def meet(ctx, routine: tl.constexpr):
    """barrier_all, in the name of ``routine``."""
    arch.check_context(ctx, routine)
    event = arch.begin_meeting(ctx, routine)
    transport.synchronise(ctx, routine)
    arch.end_event(ctx, event)


@jit
def barrier_all_grid(ctx):
    """Complete what all programs have started, and wait until every program of the grids on all PEs of the team is here.

    ctx: a device context. All programs call it; grids may differ between PEs. The programs of a grid must run at the
        same time: start it by shmem.launch with cooperative=True. No program is in barrier_all or sync_all meanwhile.
    Order: what any of the programs stored before it, all of them read after it.
    Errors: ArgumentError for what is no device context, and in interpreted kernels for a grid of several programs;
        WaitTimeoutError, raised by the next host call, where the wait takes longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: OpenSHMEM 1.6, 9.9 SHMEM_BARRIER_ALL.
    """
    arch.check_alone(ctx, "barrier_all_grid", programs())
    slot = slot_of_one(ctx, "barrier_all_grid")
    event = arch.begin_meeting(ctx, "barrier_all_grid")
    come, released = word_of(slot, 2), word_of(slot, 3)
    transport.fence(ctx)
    before = arch.fetch(ctx, released)
    last = before + tl.cast(programs(), tl.uint64)  # what ``come`` grows to with the last program
    if arch.atomic(ctx, "add", come, tl.cast(1, tl.uint64), None, "acq_rel", "sys") + 1 == last:
        transport.synchronise(ctx, "barrier_all_grid")
        arch.set_signal(ctx, released, last)
    else:
        arch.wait(ctx, "barrier_all_grid", "ctx", released, comparisons.NE, before)
    arch.end_event(ctx, event)


@jit
def word_of(slot, place: tl.constexpr):
    """A counter of a slot, as a pointer to uint64."""
    return count_of(slot, place).to(tl.pointer_type(tl.uint64), bitcast=True)
