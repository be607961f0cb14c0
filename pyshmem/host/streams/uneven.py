"""alltoallv_on_stream: an exchange of blocks whose sizes are in memory, so that the host need not know them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host import collectives
from pyshmem.host.collectives import Pair, context_of, pair_of
from pyshmem.host.streams.collectives import unit_of
from pyshmem.host.teams import Team, member
from pyshmem.kernels.plans import known, remember
from pyshmem.memory.arguments import Array, describe, refuse_dtype, require_writable
from pyshmem.memory.heap import Heap
from pyshmem.transport.near_or_far import route

__all__ = ["alltoallv_on_stream"]

_NAME = "alltoallv_on_stream"


class _Rows(NamedTuple):
    """The checked arrays of a call. Rows are of ``width`` elements."""

    pair: Pair
    width: int
    room: int
    length: int


def alltoallv_on_stream(
    target: Array,
    source: Array,
    counts: Array,
    received: Array,
    displacements: Array | None = None,
    team: Team | None = None,
) -> None:
    """Enqueue a kernel that sends ``counts[j]`` rows of ``source`` to member j; in ``target`` they lie in the order of PEs.

    target, source: symmetric, contiguous, of one dtype, without overlap; a row is what the first index selects. target has
        equally many rows on all members; those beyond its end are dropped. source is the same array on all members.
    counts, received: int64, one per member, on the device of target. received gets the number of rows that each member
        has sent, dropped ones included. Rows that source does not have are not sent.
    displacements: int64, the first row for each member, on that device; None means that the blocks follow each other.
    team: a team of this PE; None is TEAM_WORLD.
    Order: collective over team, on torch's current stream, on which the kernel reads the numbers. Later work on the stream
        finds target and received complete and may change the other arrays. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, DtypeError, ArgumentError, NotInitializedError; a time-out is raised by a later call.
    Spec: none; 9.9 SHMEM_ALLTOALL, MPI_Alltoallv, and all_to_all_vdev of torch's symmetric memory.
    """
    group = member(_NAME, team)
    rows = _checked(target, source)
    heap, size = rows.pair.heap, group.size
    starts = 0 if displacements is None else _numbers("displacements", displacements, heap, size)
    numbers = _numbers("counts", counts, heap, size), starts, _numbers("received", received, heap, size)
    require_writable(_NAME, "received", received)
    if not heap.streams:
        _now(group, rows, counts, received, displacements)
        return
    pair, item = rows.pair, rows.pair.dtype.itemsize
    unit = unit_of(_NAME, item)
    nbytes = rows.room * rows.width * item // group.size
    key = (_NAME, unit, nbytes, group.meeting.wires, job.generation)
    plan = known.get(key) or remember(key, _plan(group, unit, nbytes))
    words = (*numbers, rows.room, rows.length, rows.width * (item // unit))
    stream = heap.near.use_stream()
    plan.launch(_NAME, stream, pair.dest, pair.src, *words)


def _plan(group: Team, unit: int, nbytes: int) -> Any:
    from pyshmem.kernels.uneven import plan  # imports triton, which other programs do not need

    return plan(context_of(group), unit, nbytes)


def _checked(target: Any, source: Any) -> _Rows:
    pair = pair_of(_NAME, target, source)
    widths = [math.prod(array.shape[1:]) for array in (target, source)]
    if widths[0] != widths[1] or not widths[0]:
        shapes = f"rows of {widths[1]} elements"
        refuse(ArgumentError, _NAME, "source", shapes, f"rows of 1 element or more, like those of target, {widths[0]}")
    if not pair.length:
        refuse(ArgumentError, _NAME, "source", "no rows", "the array that all members give; counts may be 0")
    return _Rows(pair, widths[0], pair.room // widths[0], pair.length // widths[0])


def _numbers(argument: str, array: Any, heap: Heap, members: int) -> int:
    """Return the address of an int64 for each member, in ``heap``'s kind of memory. Errors: DtypeError, ArgumentError."""
    found = describe(_NAME, argument, array)
    if found.dtype is not torch.int64:
        refuse_dtype(_NAME, argument, found.dtype, (torch.int64,))
    if found.heap is not heap:
        refuse(ArgumentError, _NAME, argument, f"memory of {found.heap.device}", f"that of target, {heap.device}")
    if found.nelems != members:
        refuse(ArgumentError, _NAME, argument, f"{found.nelems} elements", f"{members}, one for each member")
    return found.address


def _now(group: Team, rows: _Rows, counts: Any, received: Any, displacements: Any) -> None:
    """The call in CPU memory: each PE gets its rows once it knows where they are."""
    pair, asked = rows.pair, np.maximum(_flat(counts), 0)
    first = np.cumsum(asked) - asked if displacements is None else _flat(displacements)
    sent = np.where(first >= 0, np.clip(rows.length - first, 0, asked), 0)
    table, came = np.stack([sent, first], axis=1), np.empty((group.size, 2), np.int64)
    collectives.alltoall(came, table, 2, group)
    _flat(received)[:] = came[:, 0]
    place, nbytes = 0, rows.width * pair.dtype.itemsize
    for pe, (count, begun) in zip(group._world_pes(), came.tolist(), strict=True):
        fitting = min(count, rows.room - place)
        if fitting > 0:
            to, away = route(_NAME, pair.heap, pe)
            to.get(pair.dest + place * nbytes, pair.src + begun * nbytes + away, fitting * nbytes)
        place += count
    group.meeting.sync(_NAME)


def _flat(array: Any) -> np.ndarray[Any, Any]:
    """Return a view of an array in CPU memory."""
    return np.asarray(array).reshape(-1)
