"""The barrier of whole grids. Spec: OpenSHMEM 1.6, 9.9, of all programs of all PEs' kernels."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import DeviceContext
from pyshmem.device.scratch import count_of, programs, slot_of_one


@jit
def barrier_all_grid(ctx: DeviceContext) -> None:
    """quiet, then wait until every program of the grids of all PEs of ctx's team is here. All of them call it.

    The grids may differ between PEs. All programs of one must run at once: start it by shmem.launch with cooperative=True.
    Order: barrier_all's, of all programs; no other program may be in barrier_all or sync_all of this team meanwhile.
    Errors: barrier_all's; in the interpreter a grid of more than one program.  Spec: 9.9 SHMEM_BARRIER_ALL.
    """
    arch.check_alone(ctx, "barrier_all_grid", programs())
    slot = slot_of_one(ctx, "barrier_all_grid")
    come, released = word_of(slot, 2), word_of(slot, 3)
    arch.fence(ctx)
    before = arch.fetch(ctx, released)
    last = before + tl.cast(programs(), tl.uint64)  # what ``come`` grows to with the last program
    if arch.atomic(ctx, "add", come, tl.cast(1, tl.uint64), None, "acq_rel", "sys") + 1 == last:
        arch.synchronise(ctx, "barrier_all_grid")
        arch.set_signal(ctx, released, last)
    else:
        arch.wait(ctx, "barrier_all_grid", "ctx", released, 1, before)


@jit
def word_of(slot: tl.tensor, place: tl.constexpr) -> tl.tensor:
    return count_of(slot, place).to(tl.pointer_type(tl.uint64), bitcast=True)
