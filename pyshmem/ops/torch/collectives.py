"""The collectives on streams as torch operators, so that torch.compile(fullgraph=True) keeps them in its graph.

A compiler may pass a copy of a symmetric array, or an array of its own. An operand that is not symmetric is staged: it is
copied to symmetric memory before the collective, and a target is copied back. The first call with a size allocates that
memory on all PEs, so make one before a CUDA graph is captured.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch.library import register_autograd, register_fake

import pyshmem as shmem
from pyshmem.base.job import job
from pyshmem.host.teams import Team
from pyshmem.ops import plans, rows
from pyshmem.ops.torch.team_names import WORLD, ByHandle, operator, team_of
from pyshmem.ops.workspace import Workspace

__all__ = [
    "all_reduce", "alltoall_on_stream", "alltoallv_on_stream", "barrier_on_stream", "broadcast_on_stream", "clear",
    "fcollect_on_stream", "gather_rows", "reduce_on_stream", "reduce_scatter_on_stream", "reduce_scatter_rows",
    "sum_exscan_on_stream", "sum_inscan_on_stream",
]  # fmt: skip

_spaces: dict[tuple[Any, ...], tuple[Team, Workspace]] = {}


def stage(routine: str, role: str, team: Team, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Return symmetric memory, the same for the same arguments. The first call is collective over the team.

    Errors: HeapExhaustedError.
    """
    key = (role, team.meeting.wires, job.generation, shape, dtype)
    found = _spaces.get(key)
    if found is None or not found[0]:
        found = _spaces[key] = (team, Workspace(routine, team, {role: (tuple(shape), dtype)}))
    return found[1][role]


def clear() -> None:
    """Close all plans and free all staging memory, also that of captured graphs.

    Collective over all PEs, which have made the same calls.
    """
    plans.clear()
    while _spaces:
        key, (team, space) = _spaces.popitem()
        if team and key[2] == job.generation:
            space.close()


@contextmanager
def _symmetric(routine: str, role: str, team: Team, array: Tensor, written: bool) -> Iterator[Tensor]:
    """The array itself if it is symmetric, else a symmetric copy. written: copy it back at the end."""
    if shmem.is_symmetric(array) and array.is_contiguous():
        yield array
        return
    copy = stage(routine, role, team, array.shape, array.dtype)
    copy.copy_(array)
    yield copy
    if written:
        array.copy_(copy)


def _perform(call: Callable[..., None], target: Tensor, source: Tensor, team: str, *more: Any) -> None:
    """``call`` with symmetric operands. more: its arguments between source and team."""
    routine = call.__name__
    group = team_of(routine, team)
    with ExitStack() as stack:
        dest = stack.enter_context(_symmetric(routine, "target", group, target, True))
        given = dest if source is target else stack.enter_context(_symmetric(routine, "source", group, source, False))
        call(dest, given, *more, group)


@operator("target")
def reduce_on_stream(
    target: Tensor, source: Tensor, op: str = "sum", size: int | None = None, *, team: str = WORLD
) -> None:
    """pyshmem.reduce_on_stream, with a team by its name."""
    _perform(shmem.reduce_on_stream, target, source, team, op, size)


@operator("target")
def reduce_scatter_on_stream(
    target: Tensor, source: Tensor, op: str = "sum", size: int | None = None, *, team: str = WORLD
) -> None:
    """pyshmem.reduce_scatter_on_stream, with a team by its name."""
    _perform(shmem.reduce_scatter_on_stream, target, source, team, op, size)


@operator("target")
def sum_inscan_on_stream(target: Tensor, source: Tensor, size: int | None = None, *, team: str = WORLD) -> None:
    """pyshmem.sum_inscan_on_stream, with a team by its name."""
    _perform(shmem.sum_inscan_on_stream, target, source, team, size)


@operator("target")
def sum_exscan_on_stream(target: Tensor, source: Tensor, size: int | None = None, *, team: str = WORLD) -> None:
    """pyshmem.sum_exscan_on_stream, with a team by its name."""
    _perform(shmem.sum_exscan_on_stream, target, source, team, size)


@operator("target")
def fcollect_on_stream(target: Tensor, source: Tensor, size: int | None = None, *, team: str = WORLD) -> None:
    """pyshmem.fcollect_on_stream, with a team by its name."""
    _perform(shmem.fcollect_on_stream, target, source, team, size)


@operator("target")
def alltoall_on_stream(target: Tensor, source: Tensor, size: int | None = None, *, team: str = WORLD) -> None:
    """pyshmem.alltoall_on_stream, with a team by its name."""
    _perform(shmem.alltoall_on_stream, target, source, team, size)


@operator("target", "received")
def alltoallv_on_stream(
    target: Tensor, source: Tensor, counts: Tensor, received: Tensor, displacements: Tensor | None = None, *,
    team: str = WORLD,
) -> None:  # fmt: skip
    """pyshmem.alltoallv_on_stream, with a team by its name."""
    _perform(shmem.alltoallv_on_stream, target, source, team, counts, received, displacements)


@operator("target")
def broadcast_on_stream(
    target: Tensor, source: Tensor, root: int, size: int | None = None, *, team: str = WORLD
) -> None:
    """pyshmem.broadcast_on_stream, with a team by its name."""
    _perform(shmem.broadcast_on_stream, target, source, team, root, size)


@operator()
def barrier_on_stream(*, team: str = WORLD) -> None:
    """pyshmem.barrier_on_stream, with a team by its name. Compiled code keeps it, in order with other barriers.

    A compiler does not know which arrays peers write, so it may move other work across the barrier: break the graph for
    one-sided access.
    """
    shmem.barrier_on_stream(team_of("barrier_on_stream", team))


@operator(differentiable=True)
def gather_rows(a: Tensor, size: int | None = None, after: Tensor | None = None, *, team: str = WORLD) -> Tensor:
    """Return the rows of ``a`` of all PEs of the team, in a new tensor. Collective over the team.

    a: this PE's rows, a matrix of any dtype, not necessarily symmetric.
    size: the number of all rows, where the team does not divide it: the first PEs have one more.
    after: a tensor that compilers make before, or None. Give a backward's gradient if ``a`` does not depend on it: torch's
        partitioner may move such a call into the forward pass, on some PEs and not on others.
    """
    return rows.gather_rows(a, size, team_of("gather_rows", team))


@operator(differentiable=True)
def reduce_scatter_rows(a: Tensor, *, team: str = WORLD) -> Tensor:
    """Return this PE's rows of the sum over all PEs of ``a``, a matrix, in a new tensor. The first PEs have one more."""
    return rows.reduce_scatter_rows(a, team_of("reduce_scatter_rows", team))


@operator(differentiable=True)
def all_reduce(a: Tensor, *, team: str = WORLD) -> Tensor:
    """Return the sum over all PEs of ``a``, a matrix, in a new tensor. Collective over the team."""
    return rows.all_reduce(a, team_of("all_reduce", team))


@register_fake("pyshmem::gather_rows")
def _(a: Tensor, size: int | None = None, after: Tensor | None = None, *, team: str) -> Tensor:
    return a.new_empty((a.shape[0] * team_of("gather_rows", team).size if size is None else size, a.shape[1]))


@register_fake("pyshmem::reduce_scatter_rows")
def _(a: Tensor, *, team: str) -> Tensor:
    group = team_of("reduce_scatter_rows", team)
    return a.new_empty(((a.shape[0] + group.size - 1 - group.me) // group.size, a.shape[1]))


register_fake("pyshmem::all_reduce", lambda a, *, team: torch.empty_like(a, memory_format=torch.contiguous_format))


def _remember(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    ctx.perform, ctx.rows, ctx.more = ByHandle(keyword_only_inputs["team"]), inputs[0].shape[0], len(inputs) - 1


def _back(name: str, *size: str) -> Callable[..., Any]:
    """Return the backward of an operator that ``name`` is. size: where it takes the number of rows."""

    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.perform(name, gradient, *[ctx.rows] * len(size)), *[None] * ctx.more

    return backward


register_autograd("pyshmem::gather_rows", _back("reduce_scatter_rows"), setup_context=_remember)
register_autograd("pyshmem::reduce_scatter_rows", _back("gather_rows", "size"), setup_context=_remember)
register_autograd("pyshmem::all_reduce", _back("all_reduce"), setup_context=_remember)


_NAMES = "reduce reduce_scatter sum_inscan sum_exscan fcollect alltoall alltoallv broadcast barrier"
for _name in _NAMES.split():
    register_fake(f"pyshmem::{_name}_on_stream", lambda *operands, **options: None)
_register_effectful_op(torch.ops.pyshmem.barrier_on_stream.default, _EffectType.ORDERED)
