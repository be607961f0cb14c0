"""Broadcast, collect, all-to-all, reductions and scans over a team. Spec: OpenSHMEM 1.6, 9.9.

This module checks and counts the arguments; the meeting of the team, in pyshmem.transport, moves the data. Targets are ready
on all members before any of them calls, so members write to them at once. No member needs to synchronise a source.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pyshmem.host.teams import Team, member
from pyshmem.runtime import _native
from pyshmem.runtime.arguments import KINDS, Array, count_of, integer_of, name_of, refuse_dtype, symmetric_array
from pyshmem.runtime.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.runtime.heap import views
from pyshmem.transport.mapped import EXSCAN, INSCAN, OPERATORS, REDUCE, Fold

_N_OPERATORS = len(OPERATORS)  # as in _collectives.h


class Pair(NamedTuple):
    """The checked arrays of a call: local addresses and numbers of elements."""

    heap: Any
    dest: int
    src: int
    room: int
    length: int
    dtype: Any


def broadcast(target: Array, source: Array, root: int, size: int | None = None, team: Team | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` on PE ``root`` of ``team`` to ``target`` on every member.

    target, source: symmetric, contiguous, of one dtype, with at least size elements. The root's target is written too.
    size: the number of elements; None means all of source.
    team: a team of this PE; None is TEAM_WORLD. root counts in it.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; the root does not wait for the others.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_BROADCAST.
    """
    group = member("broadcast", team)
    if group.meeting.quick("broadcast", 0, root, target, source, size):
        return
    pair = pair_of("broadcast", target, source)
    nbytes = elements_of("broadcast", pair, size) * pair.dtype.itemsize
    root = integer_of(root)
    group._world_pe("broadcast", root)
    if nbytes:
        group.meeting.broadcast("broadcast", pair.heap, root, pair.dest, pair.src, nbytes)


def collect(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Concatenate the first ``size`` elements of ``source`` of all members, in their order, in ``target`` on every member.

    target, source: symmetric, contiguous, of one dtype; target has at least the elements of all members.
    size: may differ between members, and be 0; None means all of source.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError. A target
        that is too small is refused on all members.
    Spec: 9.9 SHMEM_COLLECT.
    """
    group, pair = member("collect", team), pair_of("collect", target, source)
    count = pair.length if size is None else count_of("collect", "size", size)
    if count > pair.length:
        refuse(OutOfRangeError, "collect", "size", f"{count} elements, with source of {pair.length}", "at most those")
    notes = group.meeting.share("collect", np.array([count, pair.room], dtype=np.int64).tobytes())
    counts, rooms = np.array([np.frombuffer(note, dtype=np.int64) for note in notes]).T.tolist()
    if sum(counts) > min(rooms):
        got = f"{min(rooms)} elements on some PE"
        refuse(OutOfRangeError, "collect", "target", got, f"at least {sum(counts)}, which come together")
    item = pair.dtype.itemsize
    first = pair.dest + sum(counts[: group.me]) * item
    if sum(counts):
        group.meeting.scatter("collect", pair.heap, first, pair.src, 0, count * item, 0, 0, 1)


def fcollect(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Concatenate ``size`` elements of ``source`` of each member, in their order, in ``target`` on every member.

    target, source: symmetric, contiguous, of one dtype; target has at least size elements per member.
    size: the same on all members; None means all of source.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_FCOLLECT.
    """
    group = member("fcollect", team)
    if group.meeting.quick("fcollect", 1, 0, target, source, size):
        return
    pair = pair_of("fcollect", target, source)
    count = block_of("fcollect", pair, pair.length if size is None else size, (group.size, 1))
    if count:
        nbytes = count * pair.dtype.itemsize
        group.meeting.scatter("fcollect", pair.heap, pair.dest + group.me * nbytes, pair.src, 0, nbytes, 0, 0, 1)


def alltoall(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Copy block j of ``source`` to ``target`` on member j, at the block with the number of this PE.

    target, source: symmetric, contiguous, of one dtype, with one block per member; they must not overlap.
    size: the elements of a block; None divides source equally.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_ALLTOALL.
    """
    group = member("alltoall", team)
    if group.meeting.quick("alltoall", 2, 0, target, source, size):
        return
    pair = pair_of("alltoall", target, source)
    count = share_of("alltoall", pair, size, group.size)
    if count:
        nbytes = count * pair.dtype.itemsize
        dest = pair.dest + group.me * nbytes
        group.meeting.scatter("alltoall", pair.heap, dest, pair.src, nbytes, nbytes, 0, 0, 1)


def alltoalls(
    target: Array, source: Array, tst: int = 1, sst: int = 1, size: int | None = None, team: Team | None = None
) -> None:
    """Exchange blocks of ``size`` elements as alltoall does, with stride ``sst`` in ``source`` and ``tst`` in ``target``.

    target, source: symmetric, contiguous, of one dtype, long enough for their strides; they must not overlap.
    tst, sst: strides in elements, 1 or more. Block j starts after j * size strides.
    size: the elements of a block; None divides those of source equally.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_ALLTOALLS.
    """
    group, pair = member("alltoalls", team), pair_of("alltoalls", target, source)
    tst, sst = count_of("alltoalls", "tst", tst), count_of("alltoalls", "sst", sst)
    for name, stride in (("tst", tst), ("sst", sst)):
        if stride < 1:
            refuse(ArgumentError, "alltoalls", name, str(stride), "1 or more")
    count = -(-pair.length // sst) // group.size if size is None else count_of("alltoalls", "size", size)
    for name, held, stride in (("target", pair.room, tst), ("source", pair.length, sst)):
        need = (count * group.size - 1) * stride + 1 if count else 0
        if need > held:
            refuse(OutOfRangeError, "alltoalls", name, f"{held} elements", f"at least {need}")
    if count:
        item = pair.dtype.itemsize
        dest, skip = pair.dest + group.me * count * tst * item, count * sst * item
        group.meeting.scatter("alltoalls", pair.heap, dest, pair.src, skip, item, tst * item, sst * item, count)


def reduce(target: Array, source: Array, op: str = "sum", size: int | None = None, team: Team | None = None) -> None:
    """Combine ``source`` of all members with ``op``, element by element and in their order, into every ``target``.

    op: "sum" or "prod" of numbers, also complex; "min" or "max" of real numbers; "and", "or" or "xor" of integers.
    target, source: symmetric, contiguous, of one dtype; either the same array or without overlap.
    size: the number of elements; None means all of source. Half-precision elements are combined in float32 and rounded once.
    team: a team of this PE; None is TEAM_WORLD. All members get the same bits.
    Order: collective over team; target must be ready on all members before any of them calls. All members wait for all, and
        on return target holds the result and source may be reused.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_SUM_REDUCE, and SHMEM_PROD_REDUCE, SHMEM_MIN_REDUCE, ...
    """
    require_operator("reduce", op)
    _fold("reduce", REDUCE, op, target, source, size, team)


def require_operator(routine: str, op: Any) -> None:
    if not isinstance(op, str) or op not in OPERATORS:
        refuse(ArgumentError, routine, "op", repr(op), "one of " + ", ".join(OPERATORS))


_REDUCTION_DOC = """Combine ``source`` of all members by {what}, element by element, in their order, into every ``target``.

    target, source: symmetric, contiguous, of one dtype, {types}; either the same array or without overlap.
    size: the number of elements; None means all of source. Half-precision elements are combined in float32 and rounded once.
    team: a team of this PE; None is TEAM_WORLD. All members get the same bits.
    Order: collective over team; target must be ready on all members before any of them calls.
        All members wait for all, and on return target holds the result and source may be reused.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_{name}.
    """
_REDUCTIONS = {
    "sum": ("addition", "real or complex"),
    "prod": ("multiplication", "real or complex"),
    "min": ("minimum", "real"),
    "max": ("maximum", "real"),
    "and": ("bitwise and", "integers"),
    "or": ("bitwise or", "integers"),
    "xor": ("bitwise exclusive or", "integers"),
}


def _reduction(op: str) -> Callable[..., None]:
    name, (what, types) = f"{op}_reduce", _REDUCTIONS[op]

    def call(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
        _fold(name, REDUCE, op, target, source, size, team)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _REDUCTION_DOC.format(what=what, types=types, name=name.upper())
    return call


and_reduce, or_reduce, xor_reduce = map(_reduction, ("and", "or", "xor"))
sum_reduce, prod_reduce, min_reduce, max_reduce = map(_reduction, ("sum", "prod", "min", "max"))


def sum_inscan(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Add ``source`` of the members up to and including this one, element by element, into ``target``.

    target, source: symmetric, contiguous, of one dtype; either the same array or without overlap. Numbers, also complex.
    size: the number of elements; None means all of source. Half-precision elements are combined in float32 and rounded once.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. All members wait for all, and
        on return target holds the result and source may be reused.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_SUM_INSCAN.
    """
    _fold("sum_inscan", INSCAN, "sum", target, source, size, team)


def sum_exscan(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Add ``source`` of the members before this one, element by element, into ``target``; zeros on the first member.

    target, source: symmetric, contiguous, of one dtype; either the same array or without overlap. Numbers, also complex.
    size: the number of elements; None means all of source. Half-precision elements are combined in float32 and rounded once.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. All members wait for all, and
        on return target holds the result and source may be reused.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_SUM_EXSCAN.
    """
    _fold("sum_exscan", EXSCAN, "sum", target, source, size, team)


def _fold(routine: str, mode: int, op: str, target: Any, source: Any, size: int | None, team: Team | None) -> None:
    group = member(routine, team)
    operator = OPERATORS[op]
    if group.meeting.quick(routine, 3, mode * _N_OPERATORS + operator.code, target, source, size):
        return
    pair = pair_of(routine, target, source)
    count = elements_of(routine, pair, size)
    if pair.dtype not in operator.dtypes:
        refuse_dtype(routine, "target", pair.dtype, operator.dtypes)
    if count:
        what = Fold(mode, op, pair.dtype, pair.dest, pair.src, count)
        group.meeting.fold(routine, pair.heap, what, partial(context_of, group))


def context_of(team: Team) -> Any:
    """The team's device context for the library's own kernels."""
    from pyshmem.host.device_context import device_context  # imports triton, which most programs do not need

    return device_context(team, None)


def pair_of(routine: str, target: Array, source: Array) -> Pair:
    found = _native.locate_pair(views, target, source)
    if found is not None:
        heap, dest, src, room, length, kind = found
        return Pair(heap, dest, src, room, length, KINDS[kind])
    to, own = symmetric_array(routine, "target", target), symmetric_array(routine, "source", source)
    if to.dtype != own.dtype:
        refuse(DtypeError, routine, "source", f"{name_of(own.dtype)} elements", f"the {name_of(to.dtype)} of target")
    if to.heap is not own.heap:
        refuse(ArgumentError, routine, "source", f"memory of {own.heap.device}", f"that of target, {to.heap.device}")
    return Pair(to.heap, to.address, own.address, to.nelems, own.nelems, to.dtype)


def elements_of(routine: str, pair: Pair, size: int | None) -> int:
    """The number of elements of a call that uses equally many in both arrays."""
    count = pair.length if size is None else count_of(routine, "size", size)
    if count > min(pair.room, pair.length):
        got = f"{count} elements, with target of {pair.room} and source of {pair.length}"
        refuse(OutOfRangeError, routine, "size", got, "at most the smaller")
    return count


def share_of(routine: str, pair: Pair, size: Any, members: int) -> int:
    """The number of elements in the block for each member; None divides source equally."""
    if size is None and pair.length % members:
        refuse(OutOfRangeError, routine, "source", f"{pair.length} elements", f"a multiple of {members}, or a size")
    return block_of(routine, pair, pair.length // members if size is None else size, (members, members))


def block_of(routine: str, pair: Pair, size: Any, blocks: tuple[int, int]) -> int:
    """The number of elements of a block, checked against the number of ``blocks`` in target and in source."""
    count = count_of(routine, "size", size)
    for name, held, number in (("target", pair.room, blocks[0]), ("source", pair.length, blocks[1])):
        if count * number > held:
            refuse(
                OutOfRangeError,
                routine,
                name,
                f"{held} elements",
                f"at least {count * number}: {number} blocks of {count}",
            )
    return count
