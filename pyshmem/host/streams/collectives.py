"""Collectives that are enqueued on torch's current stream and return at once.

OpenSHMEM has no such calls; the idea and the names are NVSHMEM's. All PEs of the team enqueue the same calls in the same
order. The calls of one team are serialised: order two of them on two streams by events. No target is written before its PE's
stream has reached the call, so no synchronisation is needed between the program's kernels and these calls. Later work on the
stream finds the target complete and may change the source. CUDA graphs can capture and replay the calls; the first call of a
kind compiles a kernel, so make one before a capture. If the members' routines, sizes or element types differ, the later of
two members is refused, and does not enqueue its kernel. A captured call is compared once, in the capture, so all members
capture alike. If a kernel waits longer than PYSHMEM_WAIT_TIMEOUT, the next fence, quiet, barrier_all, wait or test raises
the error. CPU memory has no streams: there all members synchronise and then perform the call without _on_stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast, get_args

import torch

from pyshmem.base.errors import ArgumentError, UnreachableError, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis.mismatched_calls import CODES, FIRST_FOLD, Call, refuse_unlike
from pyshmem.host import collectives
from pyshmem.host.collectives import (
    Pair,
    block_of,
    context_of,
    elements_of,
    pair_of,
    require_apart,
    require_operator,
    share_of,
)
from pyshmem.host.streams.copies import exchange
from pyshmem.host.teams import Team, member
from pyshmem.kernels.bound_kernels import require_launched
from pyshmem.kernels.method_tables import COPY, first, tables
from pyshmem.kernels.plans import kernels, known, remember
from pyshmem.memory.arguments import Array, count_of, exact_int, refuse_dtype
from pyshmem.memory.heap import default, views
from pyshmem.native import _native
from pyshmem.transport.near_or_far import pending, streams
from pyshmem.transport.teams.compared_calls import Watched
from pyshmem.transport.teams.operators import OPERATORS, Op

__all__ = [
    "alltoall_on_stream", "barrier_on_stream", "broadcast_on_stream", "fcollect_on_stream", "reduce_on_stream",
    "reduce_scatter_on_stream", "sum_exscan_on_stream", "sum_inscan_on_stream",
]  # fmt: skip

_MOVES = ("fcollect", "alltoall", "broadcast")
_SCANS = ("sum_inscan", "sum_exscan")
# the first code of each, see _call
_FOLDS = {name: FIRST_FOLD + mode * len(OPERATORS) for mode, name in enumerate(("reduce", *_SCANS, "reduce_scatter"))}
_NAMES = {name: f"{name}_on_stream" for name in ("reduce", "reduce_scatter", *_MOVES, *_SCANS)}
Engine = Literal["kernel", "copy", "auto"]
ENGINES = get_args(Engine)


def reduce_on_stream(
    target: Array, source: Array, op: Op = "sum", size: int | None = None, team: Team | None = None
) -> None:
    """Enqueue a kernel that combines ``source`` of all members with ``op``, element by element, into every ``target``.

    op: "sum", "prod", "min" or "max"; for integers also "and", "or" or "xor".
    target, source: symmetric, contiguous, of one dtype; either the same array or without overlap. Complex numbers are
        supported in CPU memory only.
    size: the number of elements; None means all of source. Half-precision elements are combined in float32.
    team: a team of this PE; None is TEAM_WORLD. All members get the same bits.
    Order: collective over team, on torch's current stream: no target is written before its PE's stream reaches the call, and
        later work on the stream finds target complete. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError; a time-out is raised by a
        later call.
    Spec: none; 9.9 SHMEM_SUM_REDUCE, and sum_reduce_on_stream of NVSHMEM.
    """
    _enqueue("reduce", op, target, source, size, team)


def reduce_scatter_on_stream(
    target: Array, source: Array, op: Op = "sum", size: int | None = None, team: Team | None = None
) -> None:
    """Enqueue a kernel that combines block j of all members' ``source`` with ``op`` into the ``target`` of member j.

    op: "sum", "prod", "min" or "max"; for integers also "and", "or" or "xor".
    target, source: symmetric, contiguous, of one dtype; target has a block, source one per member. They do not overlap, but
        target may be this PE's block. Complex numbers are supported in CPU memory only.
    size: the elements of a block; None divides source equally. Half-precision elements are combined in float32.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team, on torch's current stream: later work on the stream finds target complete and may change the
        source. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError; a time-out is raised by a
        later call.
    Spec: none; 9.9 SHMEM_SUM_REDUCE, and sum_reducescatter_on_stream of NVSHMEM.
    """
    _enqueue("reduce_scatter", op, target, source, size, team)


_SCAN_DOC = """Enqueue a kernel that adds ``source`` of {which}, element by element, into ``target``.

    target, source: symmetric, contiguous, of one dtype; either the same array or without overlap. Complex numbers are
        supported in CPU memory only.
    size: the number of elements; None means all of source. Half-precision elements are combined in float32.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team, on torch's current stream: no target is written before its PE's stream reaches the call, and
        later work on the stream finds target complete. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError; a time-out is raised by a
        later call.
    Spec: none; 9.9 SHMEM_{name}.
    """


def _scan(routine: str, which: str) -> Callable[..., None]:
    def call(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
        _enqueue(routine, None, target, source, size, team)

    call.__name__ = call.__qualname__ = _NAMES[routine]
    call.__doc__ = _SCAN_DOC.format(which=which, name=routine.upper())
    return call


sum_inscan_on_stream = _scan("sum_inscan", "the members up to and including this one")
sum_exscan_on_stream = _scan("sum_exscan", "the members before this one (zeros on the first)")


def fcollect_on_stream(
    target: Array, source: Array, size: int | None = None, team: Team | None = None, engine: Engine = "kernel"
) -> None:
    """Enqueue a kernel that concatenates ``size`` elements of ``source`` of each member in every ``target``.

    target, source: symmetric, contiguous, of one dtype; target has at least size elements per member.
    size: the same on all members; None means all of source.
    team: a team of this PE; None is TEAM_WORLD.
    engine: "kernel"; "copy" leaves the processors to other work: copy engines move the data, and the stream waits for the
        members, without a time-out, by its memory operations, or by small kernels where it has none; "auto": the faster.
    Order: collective over team, on torch's current stream: no target is written before its PE's stream reaches the call, and
        later work on the stream finds target complete. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError; a time-out is raised by a
        later call.
    Spec: none; 9.9 SHMEM_FCOLLECT, and fcollect_on_stream of NVSHMEM.
    """
    _enqueue("fcollect", engine, target, source, size, team)


def alltoall_on_stream(
    target: Array, source: Array, size: int | None = None, team: Team | None = None, engine: Engine = "kernel"
) -> None:
    """Enqueue a kernel that copies block j of ``source`` to ``target`` on member j, at this PE's block.

    target, source: symmetric, contiguous, of one dtype, with one block per member; they must not overlap.
    size: the elements of a block; None divides source equally.
    team: a team of this PE; None is TEAM_WORLD.
    engine: "kernel"; "copy" leaves the processors to other work: copy engines move the data, and the stream waits for the
        members, without a time-out, by its memory operations, or by small kernels where it has none; "auto": the faster.
    Order: collective over team, on torch's current stream: no target is written before its PE's stream reaches the call, and
        later work on the stream finds target complete. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError; a time-out is raised by a
        later call.
    Spec: none; 9.9 SHMEM_ALLTOALL, and alltoall_on_stream of NVSHMEM.
    """
    _enqueue("alltoall", engine, target, source, size, team)


def broadcast_on_stream(
    target: Array, source: Array, root: int, size: int | None = None, team: Team | None = None
) -> None:
    """Enqueue a kernel that copies ``size`` elements of ``source`` on PE ``root`` of ``team`` to every ``target``.

    target, source: symmetric, contiguous, of one dtype, with at least size elements.
    size: the number of elements; None means all of source.
    team: a team of this PE; None is TEAM_WORLD. root counts in it.
    Order: collective over team, on torch's current stream: no target is written before its PE's stream reaches the call, and
        later work on the stream finds target complete. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError; a time-out is raised by a
        later call.
    Spec: none; 9.9 SHMEM_BROADCAST, and broadcast_on_stream of NVSHMEM.
    """
    if type(root) is not int:
        root = exact_int("broadcast_on_stream", "root", root)
    _enqueue("broadcast", root, target, source, size, team)


def barrier_on_stream(team: Team | None = None) -> None:
    """Enqueue a barrier on torch's current stream: later work on any member's stream starts after all streams reach it.

    team: a team of this PE; None is TEAM_WORLD.
    Order: what kernels and puts before the barrier have stored, on the streams of the members, is visible to all work after
        it.
    Errors: ArgumentError, NotInitializedError; a time-out is raised by a later call.
    Spec: none; 9.9 SHMEM_BARRIER_ALL, and barrier_on_stream of NVSHMEM.
    """
    group = member("barrier_on_stream", team)
    near = streams()
    if near is None or not default().streams:
        for each in pending:  # puts to other nodes
            each.settle()
        group.meeting.sync("barrier_on_stream")
        return
    key = ("barrier", group.meeting.wires, job.generation)
    plan = known.get(key) or remember(key, kernels().barrier(context_of(group)))
    plan.launch("barrier_on_stream", near.use_stream(), 0, 0)


def sum_in_place(array: Array, team: Team) -> None:
    """Do what reduce_on_stream(array, array) does, uncompared: one member may enqueue what another one replays."""
    pair = pair_of("reduce_on_stream", array, array)
    if not pair.heap.streams:
        reduce_on_stream(array, array, team=team)
        return
    key = ("sum", pair.dtype, pair.length, pair.dest & 3, team.meeting.wires, job.generation)
    plan = known.get(key) or remember(key, _planned("reduce_on_stream", "reduce", "sum", team, pair, pair.length))
    plan.launch("reduce_on_stream", pair.heap.near.use_stream(), pair.dest, pair.src)


def _enqueue(routine: str, detail: Any, target: Any, source: Any, size: int | None, team: Team | None) -> None:
    """detail: the operator of a reduction, broadcast's root, the engine of fcollect and alltoall."""
    group = member(_NAMES[routine], team)
    if type(size) is not int and size is not None:
        # it is part of the plan's key, and the value of a tensor may change
        size = count_of(_NAMES[routine], "size", size)
    if job.debug:
        cast(Watched, group.meeting).compare_arrays(_NAMES[routine], source, size)
    near = streams()
    if near is None:
        _first(routine, detail, group, target, source, size, None)
        return
    asked = (routine, detail, size, group.meeting.wires, job.generation)
    code = _native.launch_pair(views, known, asked, asked[3], near.heap, near.use_stream(), target, source, False)
    if type(code) is not int:
        _first(routine, detail, group, target, source, size, code)
    elif code < 0:
        _first(routine, detail, group, target, source, size, None, code)
    else:
        require_launched(_NAMES[routine], code)


def _first(
    routine: str, detail: Any, group: Team, target: Any, source: Any, size: int | None, key: Any, other: int = 0
) -> None:
    """The first call with these arguments: check and plan it, and cache the plan under ``key`` if there is one.

    other: what compare_on_stream has returned, if it has found that the members' calls differ.
    """
    name = _NAMES[routine]
    pair = pair_of(name, target, source)
    count = _count(name, routine, detail, group, pair, size)
    if pair.heap.streams:
        start(routine, detail, group, pair, count, key, other)
    else:
        _now(name, routine, detail, group, pair, count, target, source)


def start(routine: str, detail: Any, group: Team, pair: Pair, count: int, key: Any, other: int = 0) -> None:
    """Plan a checked call in GPU memory, cache the plan under ``key`` if there is one, and enqueue it."""
    name = _NAMES[routine]
    if group.meeting.spans:
        refuse(
            UnreachableError,
            name,
            "team",
            f"{group!r} over several nodes",
            "a team of one node for arrays in GPU memory",
        )
    copied = not count or by_copy(detail, count * pair.dtype.itemsize)
    plan = None if copied else _planned(name, routine, detail, group, pair, count)
    call = _call(routine, detail, pair, count)
    other = other or _native.compare_on_stream(group.meeting.wires, call.word)
    if other == -1 - group.size:
        group.meeting.refuse_broken(name)
    if other:
        refuse_unlike(group.meeting.name, name, call, f"routine, size, type or root on PE {-1 - other}")
    if plan:
        if key:
            remember(key, plan._replace(word=call.word))
        plan.launch(name, pair.heap.near.use_stream(), pair.dest, pair.src)
    elif count:
        exchange(group, pair, count, count if routine == "alltoall" else 0, partial(barrier_on_stream, group))


def _call(routine: str, detail: Any, pair: Pair, count: int) -> Call:
    """What must be the same on all members."""
    if routine in _MOVES:
        root = detail if routine == "broadcast" else -1
        return Call(CODES[routine], pair.dtype, count, pair.heap.device, root=root)
    op = "sum" if routine in _SCANS else detail
    return Call(_FOLDS[routine] + OPERATORS[op].code, pair.dtype, count, pair.heap.device)


def _now(name: str, routine: str, detail: Any, group: Team, pair: Pair, count: int, target: Any, source: Any) -> None:
    """The call in CPU memory: the host's, after a barrier, as no target may be written before its PE calls."""
    group.meeting.sync(name)
    if routine == "reduce_scatter":
        every = torch.empty(group.size * count, dtype=pair.dtype)
        collectives.reduce(every, source, detail, every.numel(), group)
        if count:
            _native.copy(pair.dest, every[group.me * count].data_ptr(), count * every.itemsize)
        return
    more = (detail,) if routine in ("reduce", "broadcast") else ()
    getattr(collectives, routine)(target, source, *more, size=count, team=group)


def _count(name: str, routine: str, detail: Any, group: Team, pair: Pair, size: int | None) -> int:
    """The number of elements of the call, or of a block. Errors: those of the call."""
    if routine in ("fcollect", "alltoall") and detail not in ENGINES:
        refuse(ArgumentError, name, "engine", repr(detail), "'kernel', 'copy' or 'auto'")
    if routine == "fcollect":
        count = block_of(name, pair, pair.length if size is None else size, (group.size, 1))
        require_apart(name, pair, group.size * count, count, group.me * count)
        return count
    if routine == "alltoall":
        count = share_of(name, pair, size, group.size)
        require_apart(name, pair, group.size * count, group.size * count, None)
        return count
    if routine == "broadcast":
        group._world_pe(name, detail, "root")
    elif routine not in _SCANS:
        require_operator(name, detail)
    if routine == "reduce_scatter":
        return share_of(name, pair, size, group.size, 1)
    count = elements_of(name, pair, size)
    require_apart(name, pair, count)
    return count


def by_copy(engine: Any, nbytes: int) -> bool:
    """Return whether copy engines move blocks of ``nbytes``. engine: the caller's, or what other routines have there."""
    return engine == "copy" or (engine == "auto" and bool(first(tables().copies, nbytes).kind == COPY))


def _planned(name: str, routine: str, detail: Any, group: Team, pair: Pair, count: int) -> Any:
    planner, itemsize, context = kernels(), pair.dtype.itemsize, context_of(group)
    if routine in _MOVES:
        unit, root = unit_of(name, itemsize), detail if routine == "broadcast" else 0
        return planner.movement(context, routine, unit, count * (itemsize // unit), root)
    op = "sum" if routine in _SCANS else detail
    wanted = tuple(dtype for dtype in planner.NUMBERS if dtype in OPERATORS[op].dtypes)
    if pair.dtype not in wanted:
        refuse_dtype(name, "target", pair.dtype, wanted)
    if routine in _SCANS:
        return planner.scan(context, routine, pair.dtype, count)
    if routine == "reduce_scatter":
        return planner.scattering(context, group.size, op, pair.dtype, count)
    return planner.reduction(context, group.size, op, pair.dtype, count, not (pair.dest | pair.src) & 3)


def unit_of(routine: str, itemsize: int) -> int:
    """The bytes of the words that kernels move for elements of ``itemsize`` bytes. Errors: ArgumentError."""
    unit = min(itemsize, 8)
    if itemsize % unit or unit not in (1, 2, 4, 8):
        refuse(ArgumentError, routine, "target", f"elements of {itemsize} bytes", "1, 2, 4, or a multiple of 8")
    return unit
