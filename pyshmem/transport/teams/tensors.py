"""Collectives by torch and NumPy, for GPU heaps and for element types that the C module does not support.

Members read and write each other's memory between two barriers of the team. At the first barrier every source is ready;
after the second, no member accesses the arrays any more. A barrier completes the operations that this PE has enqueued. At
one of the two, all members learn whether some arrays are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from pyshmem.memory.heap import Heap
from pyshmem.transport.teams.operators import DONE, EXSCAN, HALF, INSCAN, OPERATORS, REDUCE, Fold, Uneven

if TYPE_CHECKING:
    from pyshmem.transport.teams.meeting import Meeting

_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}  # torch computes on these


def agree(routine: str, heap: Heap, team: Meeting, private: int, word: int) -> int:
    """Complete the operations of this PE, meet, and return what remains to be done: DONE is nothing special."""
    heap.near.settle()
    if team.spans:
        heap.far.settle()
    return team.agree(routine, private, word)


def broadcast(routine: str, heap: Heap, team: Meeting, private: int, word: int, root: int, *copy: int) -> int:
    """Copy from the root's source to every target, and return what remains to be done. copy: dest, src, bytes."""
    dest, src, nbytes = copy
    left = agree(routine, heap, team, private, word)
    if left == DONE:
        to, away = route(heap, team, root)
        if src + away != dest:
            to.get(dest, src + away, nbytes)
        barrier(routine, heap, team)
    return left


def scatter(
    routine: str, heap: Heap, team: Meeting, private: int, word: int, dest: int, src: int, skip: int, *strides: int
) -> int:
    """Copy from ``src`` + j * ``skip`` to ``dest`` on each member j, and return what remains to be done.

    The targets are ready, so no barrier precedes. If this PE's target is private, it copies nothing.
    """
    item, dest_step, src_step, count = strides
    for k in range(1, 1 if private else team.size + 1):
        j = (team.me + k) % team.size
        to, away = route(heap, team, j)
        place, own = dest + away, src + j * skip
        if count > 1:
            to.put_strided(place, own, dest_step, src_step, item, count)
        elif item and count and place != own:
            to.put(place, own, item)
    return agree(routine, heap, team, private, word)


def pull(routine: str, heap: Heap, team: Meeting, what: Uneven) -> None:
    """Get the blocks for this PE from the members' sources, which are all symmetric."""
    barrier(routine, heap, team)
    for member, place, count in what.incoming(team.me):
        to, away = route(heap, team, member)
        start = what.sources[member] + what.starts[member][team.me] * what.item
        to.get(place, start + away, count * what.item)
    barrier(routine, heap, team)


def fold(routine: str, heap: Heap, team: Meeting, what: Fold) -> None:
    """Reduce or scan, after agree. Each member combines one share of the elements for all: in place is safe."""
    mode, op, dtype, dest, src, count = what
    share = -(-count // team.size)
    first = min(team.me * share, count)
    length = min(share, count - first)
    if length:
        skip, nbytes = first * dtype.itemsize, length * dtype.itemsize
        targets = [_share(heap, pe, dest + skip, nbytes, dtype, op) for pe in team.pes]
        _fold(mode, op, targets, [_share(heap, pe, src + skip, nbytes, dtype, op) for pe in team.pes])
    barrier(routine, heap, team)


class _Share(NamedTuple):
    """Elements in a member's memory. Half types are computed in float32, unsigned types as signed ones."""

    memory: torch.Tensor  # their bytes; for a far member private memory, into which they are copied
    dtype: Any
    op: str
    to: Any = None  # the route to a far member
    place: int = 0

    def view(self) -> Any:
        if isinstance(self.dtype, np.dtype):
            return self.memory.numpy().view(self.dtype)
        return self.memory.view(self.dtype).view(_SIGNED.get(self.dtype, self.dtype))

    def flip(self) -> int:
        """Return the bits to flip so that a signed comparison orders unsigned values; 0 if none."""
        signed = _SIGNED.get(self.dtype)
        return torch.iinfo(signed).min if signed and self.op in ("min", "max") else 0

    def load(self) -> Any:
        """Return a private copy to compute on."""
        if self.to is not None:
            self.to.get(self.memory.data_ptr(), self.place, self.memory.numel())
        view = self.view()
        if isinstance(view, np.ndarray):
            return view.copy()
        if self.dtype in HALF:
            return view.float()
        return view ^ self.flip() if self.flip() else view.clone()

    def store(self, total: Any) -> None:
        view = self.view()
        if isinstance(view, np.ndarray):
            view[:] = total
        else:
            view.copy_(total ^ self.flip() if self.flip() else total)
        if self.to is not None:
            self.to.put(self.place, self.memory.data_ptr(), self.memory.numel())


def _share(heap: Heap, pe: int, address: int, nbytes: int, dtype: Any, op: str) -> _Share:
    """Return elements of the world PE ``pe``. address: that of this PE."""
    if pe in heap.deltas:
        return _Share(heap.bytes_at(address + heap.deltas[pe], nbytes), dtype, op)
    memory = torch.empty(nbytes, dtype=torch.uint8, device=heap.device)
    return _Share(memory, dtype, op, heap.far, address + heap.far_deltas[pe])


def _fold(mode: int, op: str, targets: list[_Share], sources: list[_Share]) -> None:
    """Combine the sources. Each member's source is read before its target is written, so they may be one array."""
    operator = OPERATORS[op]
    combine = operator.numpy if isinstance(sources[0].dtype, np.dtype) else operator.torch
    total: Any = None
    for target, source in zip(targets, sources, strict=True):
        part = source.load()
        if mode == EXSCAN:
            target.store(_zeros(part) if total is None else total)
        total = part if total is None else combine(total, part)
        if mode == INSCAN:
            target.store(total)
    for target in targets if mode == REDUCE else ():
        target.store(total)


def _zeros(like: Any) -> Any:
    return np.zeros_like(like) if isinstance(like, np.ndarray) else torch.zeros_like(like)


def route(heap: Heap, team: Meeting, j: int) -> tuple[Any, int]:
    """Return the route to member j, and the distance there."""
    pe = team.pes[j]
    return (heap.near, heap.deltas[pe]) if pe in heap.deltas else (heap.far, heap.far_deltas[pe])


def barrier(routine: str, heap: Heap, team: Meeting) -> None:
    heap.near.settle()
    if team.spans:
        heap.far.settle()
    team.sync(routine)
