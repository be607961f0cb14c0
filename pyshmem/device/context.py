"""The device context: which team, which heap, and what is known without asking anybody."""

from __future__ import annotations

from typing import NamedTuple

import triton.language as tl

from pyshmem import interpreter
from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.host.environment import read
from pyshmem.host.errors import ArgumentError, refuse
from pyshmem.host.job import job
from pyshmem.host.operands import require_init
from pyshmem.host.teams import TEAM_WORLD, Team, member


class DeviceContext(NamedTuple):
    """A team and a heap, as scalars that a kernel takes as one argument. Made by shmem.device_context.

    Fields that differ between PEs never take a value that Triton compiles a variant for (1, multiples of 16).
    """

    me: int  # 2 * (this PE's number in the team) + 3
    n_pes: int
    stride: int  # bytes from one member's heap to the next one's
    sync_area: int  # address of the team's barrier area here
    generation: int  # which init it belongs to


_made: dict[int, DeviceContext] = {}
_said = False


def device_context(team: Team | None, device: str | None) -> DeviceContext:
    """See shmem.device_context."""
    require_init("device_context")
    if device not in (None, "cpu"):
        refuse(ArgumentError, "device_context", "device", repr(device), "'cpu'")
    group = TEAM_WORLD if team is None else member("device_context", team)
    _say_where()
    found = _made.get(group.area)
    if found is None or found.generation != job.generation:
        found = _made[group.area] = DeviceContext(
            2 * group.me + 3, group.size, group.pe_stride, group.area, job.generation
        )
    return found


def _say_where() -> None:
    global _said
    if interpreter.chosen_here and not _said and job.my_pe == 0 and not read("PYSHMEM_QUIET"):
        print(
            "pyshmem: no GPU here, so kernels run in Triton's interpreter on the CPU (PYSHMEM_QUIET=1 hides this line)",
            flush=True,
        )
    _said = True


@jit
def my_pe(ctx: DeviceContext) -> tl.tensor:
    """This PE's number in ctx's team. Spec: OpenSHMEM 1.6, 9.1 SHMEM_MY_PE."""
    return (ctx.me - 3) // 2


@jit
def n_pes(ctx: DeviceContext) -> tl.tensor:
    """How many PEs ctx's team has. Spec: OpenSHMEM 1.6, 9.1 SHMEM_N_PES."""
    return ctx.n_pes


@jit
def ptr(ctx: DeviceContext, pointers: tl.tensor, pe: tl.tensor) -> tl.tensor:
    """Pointers to the same places on ``pe``, for plain tl.load and tl.store, which fence and quiet order.

    pointers: symmetric, one or a block, of this PE.  pe: a scalar, or a block that broadcasts against them.
    Errors: an address out of live memory, a pe out of range.  Spec: OpenSHMEM 1.6, 9.3 SHMEM_PTR.
    """
    arch.check(ctx, "ptr", "pointers", pointers, pe)
    return arch.translate(ctx, pointers, pe)
