"""Rows of matrices of all PEs: gathered, summed, or summed with a share for each PE. It is what backward passes exchange.

A PE sends its rows to each peer (gather_rows), all rows (all_reduce), or each peer's share to it (reduce_scatter_rows).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import Team
from pyshmem.memory.heap import default
from pyshmem.ops import plans
from pyshmem.ops.descriptions import described, typed
from pyshmem.ops.gradients import differentiable, recorded
from pyshmem.ops.plans import Call, Request, plan_for, team_of
from pyshmem.ops.shares import share_of, start_of
from pyshmem.ops.workspace import Wanted, Workspace


class Plan(plans.Plan):
    """Symmetric memory for rows of one size."""

    def __init__(self, routine: str, team: Team, wanted: Wanted) -> None:
        self.team, self.generation = team, job.generation
        self.space = Workspace(routine, team, wanted)


def gather_rows(a: torch.Tensor, size: int | None = None, team: Team | None = None) -> torch.Tensor:
    """Return the rows of ``a`` of all PEs of the team, in a new tensor. Collective over the team, on the current stream.

    a: this PE's rows, a matrix of any dtype, not necessarily symmetric.
    size: the number of all rows, where the team does not divide it: the first PEs have one more.
    """
    if recorded(a):
        back = partial(reduce_scatter_rows, team=team)
        return _differentiable(partial(gather_rows, size=size, team=team), back, a)
    group = team_of("gather_rows", team)
    n = group.size
    rows = len(a) * n if size is None else size
    longest = -(-rows // n)

    def wanted(columns: int) -> Wanted:
        return {"source": ((longest, columns), a.dtype), "target": ((n, longest, columns), a.dtype)}

    space = _space("gather_rows", group, a, (rows,), wanted)
    target = space["target"]
    space["source"][: len(a)].copy_(a)
    if target.numel():
        shmem.fcollect_on_stream(target, space["source"], team=group)
    if rows == longest * n:
        return target.reshape(rows, a.shape[1]).clone()
    return torch.cat([target[pe, : share_of(rows, pe, n)] for pe in range(n)])


def reduce_scatter_rows(a: torch.Tensor, team: Team | None = None) -> torch.Tensor:
    """Return this PE's share of the rows of the sum over all PEs of ``a``, in a new tensor. The first PEs have a row more.

    a: a matrix with as many rows on all PEs. Collective over the team, on the current stream.
    """
    if recorded(a):
        back = partial(gather_rows, size=len(a), team=team)
        return _differentiable(partial(reduce_scatter_rows, team=team), back, a)
    group = team_of("reduce_scatter_rows", team)
    n, rows = group.size, len(a)
    longest = -(-rows // n)

    def wanted(columns: int) -> Wanted:
        return {"source": ((n, longest, columns), a.dtype), "target": ((longest, columns), a.dtype)}

    space = _space("reduce_scatter_rows", group, a, a.shape[:1], wanted)
    for pe, block in enumerate(space["source"]):
        first, count = start_of(rows, pe, n), share_of(rows, pe, n)
        block[:count].copy_(a[first : first + count])
    if space["target"].numel():
        shmem.reduce_scatter_on_stream(space["target"], space["source"], team=group)
    return space["target"][: share_of(rows, group.me, n)].clone()


def all_reduce(a: torch.Tensor, team: Team | None = None) -> torch.Tensor:
    """Return the sum over all PEs of ``a``, in a new tensor. Collective over the team, on the current stream."""
    if recorded(a):
        return _differentiable(partial(all_reduce, team=team), partial(all_reduce, team=team), a)
    group = team_of("all_reduce", team)
    space = _space("all_reduce", group, a, a.shape[:1], lambda columns: {"total": ((len(a), columns), a.dtype)})
    total = space["total"].copy_(a)
    if total.numel():
        shmem.reduce_on_stream(total, total, "sum", team=group)
    return total.clone()


def _differentiable(
    call: Callable[..., torch.Tensor], back: Callable[..., torch.Tensor], a: torch.Tensor
) -> torch.Tensor:
    """Return ``call(a)``, whose gradient ``back`` gives from that of the result."""
    return differentiable(call, lambda saved, needed, gradient: (back(gradient),), a)  # type: ignore[no-any-return]


def _space(
    routine: str, team: Team, a: torch.Tensor, rows: tuple[int, ...], wanted: Callable[[int], Wanted]
) -> Workspace:
    """Return the memory for ``rows`` of the columns of ``a``. wanted: what it has. The first call allocates it."""

    def make(group: Team) -> tuple[str, Any]:
        if not isinstance(a, torch.Tensor) or a.dim() != 2 or a.device.type != default().device:
            got = f"{tuple(a.shape)} on {a.device}" if isinstance(a, torch.Tensor) else type(a).__name__
            refuse(ArgumentError, routine, "a", got, f"a torch tensor of 2 dimensions on {default().device}")
        columns = a.shape[1]
        text = f"{rows[0]} rows of {columns} in {a.dtype}"
        return text, partial(Plan, routine, group, wanted(columns))

    shared, team_id = (*rows, *a.shape[1:], a.dtype), id(team)
    call = routine, team_id, typed(shared), described(a), None
    plan, _ = plan_for(call, lambda: Request(Call(routine, team_id, shared), team, make))
    return plan.space  # type: ignore[no-any-return]


# What formulas of gradients call, by their names. Families of operators add theirs.
OPERATORS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (gather_rows, reduce_scatter_rows, all_reduce)
}


class OnTeam:
    """Calls OPERATORS by their names on a team, as formulas of gradients do. after: for compilers, see ops.torch."""

    def __init__(self, team: Team) -> None:
        self.team = team

    def __call__(self, name: str, *operands: Any, after: Any = None, **options: Any) -> Any:
        return OPERATORS[name](*operands, team=self.team, **options)
