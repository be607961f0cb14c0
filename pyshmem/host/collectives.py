"""Broadcast, collect, all-to-all, reductions and scans over a team. Spec: OpenSHMEM 1.6, 9.9.

This module checks and counts the arguments; the meeting of the team, in pyshmem.transport, moves the data. Targets are ready
on all members before any of them calls, so members write to them at once. No member needs to synchronise a source.

As members meet, they compare routine, element type, size and root, also if the size is 0. If these differ, the call is an
error on all members; a reduction or scan has then written nothing. The root of a broadcast of less than 512 KiB waits for
nobody: then it is an error on the members whose type or size is not the root's. If the root is calls ahead, a later one
raises it; another root or another routine is an error on all members, on those that have returned in their next call.

If an exception or a time-out ends a call on one PE, it is an error on all members that have not returned, and so are all
later calls of the team: BrokenTeamError.

Arrays may be private. The C names and the calls on streams take symmetric arrays only, as the specification has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from pyshmem.base.errors import ArgumentError, DtypeError, OutOfRangeError, UnreachableError, refuse
from pyshmem.diagnosis.mismatched_calls import CODES, FIRST_FOLD, Call
from pyshmem.host.teams import Team, member
from pyshmem.memory.arguments import (
    KINDS,
    Array,
    Operand,
    any_array,
    count_of,
    exact_int,
    name_of,
    refuse_dtype,
    symmetric_array,
)
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import views
from pyshmem.native import _native
from pyshmem.transport.teams.operators import (
    EXSCAN,
    INSCAN,
    OPERATORS,
    REDUCE,
    SOURCE,
    STAGED,
    TARGET,
    UNTOUCHED,
    Blocks,
    Fold,
    Op,
)

__all__ = [
    "alltoall", "alltoalls", "and_reduce", "broadcast", "collect", "fcollect", "max_reduce", "min_reduce", "or_reduce",
    "prod_reduce", "reduce", "sum_exscan", "sum_inscan", "sum_reduce", "xor_reduce",
]  # fmt: skip

_NOTE = struct.Struct("=4Q")  # what members of collect tell each other
_BROADCAST, _FCOLLECT, _ALLTOALL = (CODES[name] for name in ("broadcast", "fcollect", "alltoall"))
_FOLDS = tuple(FIRST_FOLD + mode * len(OPERATORS) for mode in (REDUCE, INSCAN, EXSCAN))


class Pair(NamedTuple):
    """The checked arrays of a call: local addresses and numbers of elements."""

    heap: Any
    dest: int
    src: int
    room: int
    length: int
    dtype: Any
    private: int = 0  # TARGET and SOURCE, for the arrays that are private


def broadcast(target: Array, source: Array, root: int, size: int | None = None, team: Team | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` on PE ``root`` of ``team`` to ``target`` on every member.

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype, with at least size
        elements; the same or without overlap. The root's target is written too; if it is symmetric, all targets in CPU
        memory must be.
    size: the number of elements; None means all of source.
    team: a team of this PE; None is TEAM_WORLD. root counts in it.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; the root may return before the others call.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_BROADCAST.
    """
    group = member("broadcast", team)
    left = group.meeting.quick("broadcast", _BROADCAST, root, target, source, size)
    if not left:
        return
    pair = any_pair("broadcast", target, source)
    count = elements_of("broadcast", pair, size)
    if type(root) is not int:
        root = exact_int("broadcast", "root", root)
    group._world_pe("broadcast", root, "root")
    require_apart("broadcast", pair, count)
    pair = _if_empty(pair, count)
    what = Blocks(pair.dest, pair.src, pair.dtype, (count,))
    group.meeting.broadcast("broadcast", pair.heap, root, what, pair.private, left)


def collect(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Concatenate the first ``size`` elements of ``source`` of all members, in their order, in ``target`` on every member.

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype. target has at least the
        elements of all members; source lies beside it, or is this PE's place in it.
    size: may differ between members, and be 0; None means all of source.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError. A target
        that is too small is refused on all members.
    Spec: 9.9 SHMEM_COLLECT.
    """
    group, pair = member("collect", team), any_pair("collect", target, source)
    count = pair.length if size is None else count_of("collect", "size", size)
    if count > pair.length:
        refuse(OutOfRangeError, "collect", "size", f"{count} elements, with source of {pair.length}", "at most those")
    call = Call(CODES["collect"], pair.dtype, count, pair.heap.device)
    note = _NOTE.pack(count, pair.room, pair.private & TARGET, call._replace(nelems=0).word)
    notes = group.meeting.share("collect", note, call)
    counts, rooms, private, words = zip(*map(_NOTE.unpack, notes), strict=True)
    if len(set(words)) > 1:
        group.meeting.refuse_difference("collect", call)
    if sum(counts) > min(rooms):
        got = f"{min(rooms)} elements on some PE"
        refuse(OutOfRangeError, "collect", "target", got, f"at least {sum(counts)}, which come together")
    if sum(counts):
        require_apart("collect", pair, sum(counts), count, sum(counts[: group.me]))
        what = Blocks(pair.dest, pair.src, pair.dtype, counts)
        group.meeting.scatter("collect", pair.heap, what, pair.private, STAGED if any(private) else UNTOUCHED)


def fcollect(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Concatenate ``size`` elements of ``source`` of each member, in their order, in ``target`` on every member.

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype. target is of one kind on all
        members, with at least size elements per member; source lies beside it, or is this PE's block of it.
    size: the same on all members; None means all of source.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_FCOLLECT.
    """
    group = member("fcollect", team)
    left = group.meeting.quick("fcollect", _FCOLLECT, 0, target, source, size)
    if not left:
        return
    pair = any_pair("fcollect", target, source)
    count = block_of("fcollect", pair, pair.length if size is None else size, (group.size, 1))
    require_apart("fcollect", pair, group.size * count, count, group.me * count)
    pair = _if_empty(pair, count)
    what = Blocks(pair.dest, pair.src, pair.dtype, [count] * group.size)
    group.meeting.scatter("fcollect", pair.heap, what, pair.private, left)


def alltoall(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Copy block j of ``source`` to ``target`` on member j, at the block with the number of this PE.

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype, without overlap, with one block
        per member. target is of one kind on all members.
    size: the elements of a block; None divides source equally.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_ALLTOALL.
    """
    group = member("alltoall", team)
    left = group.meeting.quick("alltoall", _ALLTOALL, 0, target, source, size)
    if not left:
        return
    pair = any_pair("alltoall", target, source)
    count = share_of("alltoall", pair, size, group.size)
    require_apart("alltoall", pair, group.size * count, group.size * count, None)
    pair = _if_empty(pair, count)
    what = Blocks(pair.dest, pair.src, pair.dtype, [count] * group.size, count)
    group.meeting.scatter("alltoall", pair.heap, what, pair.private, left)


def alltoalls(
    target: Array, source: Array, tst: int = 1, sst: int = 1, size: int | None = None, team: Team | None = None
) -> None:
    """Exchange blocks of ``size`` elements as alltoall does, with stride ``sst`` in ``source`` and ``tst`` in ``target``.

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype, without overlap, long enough for
        their strides. target is of one kind on all members.
    tst, sst: strides in elements, 1 or more. Block j starts after j * size strides.
    size: the elements of a block; None divides those of source equally.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team; target must be ready on all members before any of them calls. Returns when the local target
        holds the data and source may be reused; all members wait for all.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError.
    Spec: 9.9 SHMEM_ALLTOALLS.
    """
    group, pair = member("alltoalls", team), any_pair("alltoalls", target, source)
    tst, sst = count_of("alltoalls", "tst", tst), count_of("alltoalls", "sst", sst)
    for name, stride in (("tst", tst), ("sst", sst)):
        if stride < 1:
            refuse(ArgumentError, "alltoalls", name, str(stride), "1 or more")
    count = -(-pair.length // sst) // group.size if size is None else count_of("alltoalls", "size", size)
    for name, held, stride in (("target", pair.room, tst), ("source", pair.length, sst)):
        need = (count * group.size - 1) * stride + 1 if count else 0
        if need > held:
            refuse(OutOfRangeError, "alltoalls", name, f"{held} elements", f"at least {need}")
    if tst == sst == 1:  # others may interleave
        require_apart("alltoalls", pair, group.size * count, group.size * count, None)
    pair = _if_empty(pair, count)
    what = Blocks(pair.dest, pair.src, pair.dtype, [count] * group.size, count * sst, tst, sst)
    group.meeting.scatter("alltoalls", pair.heap, what, pair.private)


def reduce(target: Array, source: Array, op: Op = "sum", size: int | None = None, team: Team | None = None) -> None:
    """Combine ``source`` of all members with ``op``, element by element and in their order, into every ``target``.

    op: "sum" or "prod" of numbers, also complex; "min" or "max" of real numbers; "and", "or" or "xor" of integers.
    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype; the same or without overlap.
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

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype, {types}; the same or without
        overlap.
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
    call.__code__ = call.__code__.replace(co_name=name)  # for what says where a PE is
    call.__doc__ = _REDUCTION_DOC.format(what=what, types=types, name=name.upper())
    return call


and_reduce, or_reduce, xor_reduce = map(_reduction, ("and", "or", "xor"))
sum_reduce, prod_reduce, min_reduce, max_reduce = map(_reduction, ("sum", "prod", "min", "max"))


def sum_inscan(target: Array, source: Array, size: int | None = None, team: Team | None = None) -> None:
    """Add ``source`` of the members up to and including this one, element by element, into ``target``.

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype; the same or without overlap.
        Numbers, also complex.
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

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype; the same or without overlap.
        Numbers, also complex.
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
    left = group.meeting.quick(routine, _FOLDS[mode] + operator.code, 0, target, source, size)
    if not left:
        return
    pair = any_pair(routine, target, source)
    count = elements_of(routine, pair, size)
    if pair.dtype not in operator.dtypes:
        refuse_dtype(routine, "target", pair.dtype, operator.dtypes)
    require_apart(routine, pair, count)
    pair = _if_empty(pair, count)
    what = Fold(mode, op, pair.dtype, pair.dest, pair.src, count)
    group.meeting.fold(routine, pair.heap, what, partial(context_of, group), pair.private, left)


def context_of(team: Team) -> Any:
    """The team's device context for the library's own kernels. Errors: UnreachableError for a team of several nodes."""
    from pyshmem.host.device_context import device_context  # imports triton, which most programs do not need

    if team.meeting.spans:
        refuse(
            UnreachableError,
            "device_context",
            "team",
            f"{team!r}, which spans nodes",
            "PEs whose heaps are mapped here",
        )
    return device_context(team, None)


def _if_empty(pair: Pair, count: int) -> Pair:
    """The pair if there are elements. Of none, where the arrays are does not matter, but the members meet all the same."""
    return pair if count else pair._replace(heap=cpu, dest=cpu.base, src=cpu.base, private=0)


def pair_of(routine: str, target: Array, source: Array) -> Pair:
    """The arrays of a call that takes symmetric arrays only."""
    found = _usual(target, source)
    if found is None:
        found = _pair(
            routine, symmetric_array(routine, "target", target), symmetric_array(routine, "source", source), 0
        )
    return found


def any_pair(routine: str, target: Array, source: Array) -> Pair:
    """The arrays of a call that takes private arrays too."""
    found = _usual(target, source)
    if found is not None:
        return found
    (to, alone), (own, apart) = any_array(routine, "target", target), any_array(routine, "source", source)
    return _pair(routine, to, own, TARGET * alone | SOURCE * apart)


def _usual(target: Array, source: Array) -> Pair | None:
    """The pair if both are whole symmetric arrays of one dtype, which C sees without describing them; else None."""
    found = _native.locate_pair(views, target, source)
    if found is None:
        return None
    heap, dest, src, room, length, kind = found
    return Pair(heap, dest, src, room, length, KINDS[kind])


def _pair(routine: str, to: Operand, own: Operand, private: int) -> Pair:
    if to.dtype != own.dtype:
        refuse(DtypeError, routine, "source", f"{name_of(own.dtype)} elements", f"the {name_of(to.dtype)} of target")
    if to.heap is not own.heap:
        refuse(ArgumentError, routine, "source", f"memory of {own.heap.device}", f"that of target, {to.heap.device}")
    return Pair(to.heap, to.address, own.address, to.nelems, own.nelems, to.dtype, private)


def elements_of(routine: str, pair: Pair, size: int | None) -> int:
    """The number of elements of a call that uses equally many in both arrays."""
    count = pair.length if size is None else count_of(routine, "size", size)
    if count > min(pair.room, pair.length):
        got = f"{count} elements, with target of {pair.room} and source of {pair.length}"
        refuse(OutOfRangeError, routine, "source" if size is None else "size", got, "at most the smaller")
    return count


def require_apart(routine: str, pair: Pair, count: int, sent: int | None = None, own: int | None = 0) -> None:
    """Refuse a symmetric source that members overwrite in the target before it is read.

    count, sent: the elements used of target and of source, which is None if as many.  own: where in the target the source
    may lie, None if nowhere.
    Errors: ArgumentError.
    """
    item = pair.dtype.itemsize
    first, last = pair.src, pair.src + (count if sent is None else sent) * item
    apart = last <= pair.dest or pair.dest + count * item <= first or first == last
    if apart or pair.private or (own is not None and first == pair.dest + own * item):
        return
    where = "" if own is None else ", or all of it" if sent is None else ", or this PE's place in it"
    refuse(ArgumentError, routine, "source", "memory of target", f"memory beside it{where}")


def share_of(routine: str, pair: Pair, size: Any, members: int, room: int | None = None) -> int:
    """The number of elements in the block for each member; None divides source equally. room: blocks of target, if fewer."""
    if size is None and pair.length % members:
        refuse(OutOfRangeError, routine, "source", f"{pair.length} elements", f"a multiple of {members}, or a size")
    return block_of(routine, pair, pair.length // members if size is None else size, (room or members, members))


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
