"""Collectives on arrays that are private on some members: the data pass through the team's staging memory, in chunks.

The other members do not know the address of a private array. If a member has one, all members learn it as they meet (agree,
or the flag of a broadcast). Then all of them copy a chunk of the source to staging memory, which has the same offset on each
member, perform the collective there, and copy the result to the target. So it does not matter whose arrays are private. But
in fcollect and all-to-all calls, and as the root of a broadcast, a member writes to symmetric targets before it can know
that another member's target is private. There the targets of all members must be of one kind, or the call is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from pyshmem.base.errors import ArgumentError, HeapExhaustedError, listed, refuse
from pyshmem.memory import areas
from pyshmem.memory.heap import Heap
from pyshmem.transport.teams import tensors
from pyshmem.transport.teams.operators import TARGET, Blocks, Fold, Uneven

if TYPE_CHECKING:
    from pyshmem.transport.teams.meeting import Meeting


def fold(routine: str, heap: Heap, team: Meeting, what: Fold, context: Callable[[], Any]) -> None:
    """Reduce or scan."""
    item, total = what.dtype.itemsize, what.nelems
    place, most = _memory(routine, heap, team, item)
    src, _kept = _apart(heap, what.dest, total * item, what.src, total * item)
    for first in range(0, total, most):
        count = min(total - first, most)
        heap.near.put(place, src + first * item, count * item)
        team.fold(routine, heap, what._replace(dest=place, src=place, nelems=count), context)
        heap.near.get(what.dest + first * item, place, count * item)
    heap.near.settle()


def broadcast(routine: str, heap: Heap, team: Meeting, root: int, what: Blocks) -> None:
    """Copy the root's source to every target."""
    item, total = what.item, what.counts[0]
    team.sync(routine, what.call(routine, heap)._replace(root=root))
    place, most = _memory(routine, heap, team, item)
    src, _kept = _apart(heap, what.dest, total * item, what.src, total * item)
    for first in range(0, total, most):
        count = min(total - first, most)
        if first:
            team.sync(routine)  # all members have copied the previous chunk
        if team.me == root:
            heap.near.put(place, src + first * item, count * item)
        team.broadcast(routine, heap, root, Blocks(place, place, what.dtype, (count,)))
        heap.near.get(what.dest + first * item, place, count * item)
        heap.near.settle()


def scatter(routine: str, heap: Heap, team: Meeting, what: Blocks, private: int) -> None:
    """Exchange blocks. A chunk has a part of every block. Chunks take the two halves of the staging memory alternately.

    A member that writes to a half again has met the others in the chunk between, after they had copied from this half.
    """
    item, step = what.item, what.tst * what.item
    targets = team.share(routine, bytes([private & TARGET]))
    if routine != "collect" and len(set(targets)) > 1:  # collect has written nothing yet
        kinds = ([pe for pe, each in enumerate(targets) if any(each) is kind] for kind in (True, False))
        _refuse_targets(routine, team, *map(listed, kinds))
    place, most = _memory(routine, heap, team, 2 * team.size * item)
    src, _kept = _apart(heap, *what.target_range(), *what.source_range(team.me))
    for epoch, first in enumerate(range(0, max(what.counts), most)):
        counts = [max(0, min(count - first, most)) for count in what.counts]
        half = place + epoch % 2 * most * team.size * item
        chunk = what._replace(dest=half, src=src + first * what.sst * item, counts=counts, tst=1)
        team.scatter(routine, heap, chunk)
        for j, count in enumerate(counts):
            dest, part = what.dest + what.start(j) * item + first * step, half + chunk.start(j) * item
            if what.tst > 1:
                heap.near.get_strided(dest, part, step, item, item, count)
            elif count:
                heap.near.get(dest, part, count * item)
    heap.near.settle()


def pull(routine: str, heap: Heap, team: Meeting, what: Uneven) -> None:
    """Exchange blocks of any sizes: in a turn each member puts a part of each block into its own staging memory.

    The other members get it from there. Turns take the two halves of the memory alternately: before a member writes to a
    half again, all have copied from it, since they have met in the turn between.
    """
    place, most = _memory(routine, heap, team, 2 * team.size * what.item)
    counts, starts, src = what.counts[team.me], what.starts[team.me], what.sources[team.me]
    step = most * what.item
    for turn, first in enumerate(range(0, max(map(max, what.counts)), most)):
        half = place + turn % 2 * team.size * step
        for j, (count, start) in enumerate(zip(counts, starts, strict=True)):
            if count > first:
                heap.near.put(half + j * step, src + (start + first) * what.item, min(count - first, most) * what.item)
        tensors.barrier(routine, heap, team)
        for member, target, count in what.incoming(team.me):
            if count > first:
                to, away = tensors.route(heap, team, member)
                to.get(target + first * what.item, half + team.me * step + away, min(count - first, most) * what.item)
    tensors.barrier(routine, heap, team)


def refuse_mixture(routine: str, team: Meeting, root: int, private: int) -> NoReturn:
    """Refuse a broadcast whose root has a symmetric target. private: of this PE. Errors: ArgumentError."""
    where = f"PE {team.me}" if private & TARGET else "a PE from which this one receives the data"
    _refuse_targets(routine, team, where, f"PE {root}, the root")


def _memory(routine: str, heap: Heap, team: Meeting, unit: int) -> tuple[int, int]:
    """Return (address, number) of the units of so many bytes in the staging memory. Errors: HeapExhaustedError."""
    place, nbytes = areas.staging(heap, team.area_index)
    if nbytes < unit:
        got = f"{nbytes} bytes of staging memory for private arrays in {team.name}"
        refuse(HeapExhaustedError, routine, "PYSHMEM_STAGING", got, f"at least {unit}, or symmetric arrays")
    return place, nbytes // unit


def _apart(heap: Heap, dest: int, dest_bytes: int, src: int, src_bytes: int) -> tuple[int, torch.Tensor | None]:
    """Return the address of the source, and what keeps it alive: a copy if source and target overlap.

    The target is written chunk by chunk before all of the source is read; in place, a chunk is read before it is written.
    """
    if (dest, dest_bytes) == (src, src_bytes) or dest + dest_bytes <= src or src + src_bytes <= dest:
        return src, None
    copy = torch.empty(src_bytes, dtype=torch.uint8, device=heap.device)
    heap.near.put(copy.data_ptr(), src, src_bytes)
    return copy.data_ptr(), copy


def _refuse_targets(routine: str, team: Meeting, private: str, symmetric: str) -> NoReturn:
    got = f"private memory on {private} and symmetric memory on {symmetric}"
    refuse(ArgumentError, routine, "target", got, f"targets of one kind on all PEs of {team.name}")
