"""alltoallv: an exchange of blocks whose sizes the host knows, each PE those that it sends. Spec: none; 9.9 SHMEM_ALLTOALL.

The members exchange all sizes, and each gets its blocks once it knows where they are. So a PE writes its own target alone.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.base import layout
from pyshmem.base.errors import ArgumentError, OutOfRangeError, refuse
from pyshmem.diagnosis.mismatched_calls import CODES, Call
from pyshmem.host.collectives import Pair, any_pair
from pyshmem.host.teams import Team, member
from pyshmem.memory.arguments import Array, any_array, count_of, refuse_dtype
from pyshmem.transport.teams.operators import SOURCE, Uneven

__all__ = ["alltoallv"]

_NAME = "alltoallv"
_HEAD = struct.Struct("=4Qq")  # of what members tell each other; a count and a start for each member follow
_NOTE = layout.number("NOTE")  # the most bytes that share passes


class _Told(NamedTuple):
    """What all members have told, by member. Numbers are of rows."""

    words: list[int]  # of their calls
    widths: list[int]
    rooms: list[int]
    private: list[int]  # whether the source is
    offsets: list[int]  # of the source in the heap
    counts: list[list[int]]
    starts: list[list[int]]


def alltoallv(
    target: Array,
    source: Array,
    counts: Any,
    received: Array | None = None,
    displacements: Any = None,
    team: Team | None = None,
) -> None:
    """Send ``counts[j]`` rows of ``source`` to member j; in ``target`` they lie in the order of PEs.

    target, source: symmetric or, at the cost of copies, private; contiguous, of one dtype, without overlap; a row is what
        the first index selects, of as many elements on all members. Their lengths may differ between members.
    counts: ints, one per member, in a list, array or tensor; 0 sends nothing.
    received: int64, one element per member, which gets the number of rows that each member has sent; None if not needed.
    displacements: ints, the first row for each member; None: blocks follow each other. team: of this PE; None is TEAM_WORLD.
    Order: collective over team. Only this PE writes target, in the call. Returns when target holds the data and source may
        be reused; all members wait for all.
    Errors: NotSymmetricError, DtypeError, ArgumentError, NotInitializedError, WaitTimeoutError, OutOfRangeError; of a target
        that is too small, on all members.
    Spec: none; 9.9 SHMEM_ALLTOALL, and MPI_Alltoallv.
    """
    group, pair = member(_NAME, team), any_pair(_NAME, target, source)
    width, expected = _width(source), _width(target)
    if expected != width:
        got, wants = f"rows of {width} elements", f"rows like those of target, of {expected}"
        refuse(ArgumentError, _NAME, "source", got, wants)
    sent = _numbers("counts", counts, group.size)
    starts = _starts(sent, displacements, pair.length // width if width else 0, group.size)
    into = None if received is None else _received(received, group.size)
    _require_apart(pair)
    told = _tell(group, pair, width, sent, starts)
    if sum(map(sum, told.counts)):
        elements = ([[rows * width for rows in each] for each in table] for table in (told.counts, told.starts))
        sources = [pair.heap.base + offset for offset in told.offsets]
        what = Uneven(pair.dest, sources, pair.dtype.itemsize, *elements)
        group.meeting.pull(_NAME, pair.heap, what, any(told.private))
    if into is not None:
        into.copy_(torch.tensor([each[group.me] for each in told.counts]))


def _width(array: Any) -> int:
    """The elements of a row."""
    return math.prod(array.shape[1:])


def _numbers(argument: str, values: Any, members: int) -> list[int]:
    found = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(found, (list, tuple)):
        refuse(ArgumentError, _NAME, argument, repr(values), f"{members} ints, one for each member")
    if len(found) != members:
        refuse(ArgumentError, _NAME, argument, f"{len(found)} numbers", f"{members}, one for each member")
    return [count_of(_NAME, argument, each) for each in found]


def _starts(sent: list[int], displacements: Any, rows: int, members: int) -> list[int]:
    """The first row for each member. Errors: OutOfRangeError for rows that source does not have."""
    given = displacements is not None
    starts = _numbers("displacements", displacements, members) if given else [sum(sent[:j]) for j in range(members)]
    for j, (count, start) in enumerate(zip(sent, starts, strict=True)):
        if count and start + count > rows:
            got = f"rows {start} to {start + count - 1} for member {j}"
            refuse(OutOfRangeError, _NAME, "displacements" if given else "counts", got, f"the {rows} rows of source")
    return [start if count else 0 for count, start in zip(sent, starts, strict=True)]


def _received(array: Any, members: int) -> torch.Tensor:
    found = any_array(_NAME, "received", array)[0]
    if found.dtype is not torch.int64:
        refuse_dtype(_NAME, "received", found.dtype, (torch.int64,))
    if found.nelems != members:
        refuse(ArgumentError, _NAME, "received", f"{found.nelems} elements", f"{members}, one for each member")
    return torch.as_tensor(array).view(-1)


def _require_apart(pair: Pair) -> None:
    item = pair.dtype.itemsize
    apart = pair.dest + pair.room * item <= pair.src or pair.src + pair.length * item <= pair.dest
    if not apart and pair.length:
        refuse(ArgumentError, _NAME, "source", "memory of target", "memory beside it")


def _tell(group: Team, pair: Pair, width: int, sent: list[int], starts: list[int]) -> _Told:
    """Exchange what the members are called with. Errors, on all members: what differs, and targets that are too small."""
    call = Call(CODES[_NAME], pair.dtype, width, pair.heap.device)
    rows = pair.room // width if width else 0
    word = call._replace(nelems=0).word
    head = _HEAD.pack(word, width, rows, pair.private & SOURCE, pair.src - pair.heap.base)
    told = _told(group, head + np.array([sent, starts], np.int64).tobytes(), call)
    if len(set(told.words)) > 1 or len(set(told.widths)) > 1:
        group.meeting.refuse_difference(_NAME, call)
    for j, room in enumerate(told.rooms):
        come = sum(each[j] for each in told.counts)
        if come > room:
            refuse(OutOfRangeError, _NAME, "target", f"{room} rows on PE {j}", f"at least {come}, which come together")
    return told


def _told(group: Team, note: bytes, call: Call) -> _Told:
    """Share a note of any length, in parts."""
    parts = [group.meeting.share(_NAME, note[first : first + _NOTE], call) for first in range(0, len(note), _NOTE)]
    notes = [b"".join(each) for each in zip(*parts, strict=True)]
    words, widths, rooms, private, offsets = map(list, zip(*(_HEAD.unpack_from(each) for each in notes), strict=True))
    tables = [np.frombuffer(each, np.int64, offset=_HEAD.size).reshape(2, -1).tolist() for each in notes]
    counts, starts = [each[0] for each in tables], [each[1] for each in tables]
    return _Told(words, widths, rooms, private, offsets, counts, starts)
