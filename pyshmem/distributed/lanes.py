"""The moves of collectives: for tensors in GPU memory on torch's current stream, else by the host's calls.

The calls on streams take symmetric arrays. Tensors that are not symmetric pass through the group's lane, symmetric memory
that it alone uses, in as many rounds as they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

import pyshmem as shmem
from pyshmem.host.teams import Team
from pyshmem.runtime import _native
from pyshmem.runtime.errors import HeapExhaustedError, refuse
from pyshmem.runtime.heap import heaps, views
from pyshmem.runtime.job import job

_ARENA = 64 << 20  # bytes of all lanes
_MOST, _LEAST = 16 << 20, 1 << 20  # bytes of a lane
_ALIGNED = 64
_MOST_KEPT = 256  # sizes for which a lane keeps its arrays


class Lane:
    """Symmetric memory of one team, whose calls on streams pass through it one after the other."""

    def __init__(self, team: Team, memory: Tensor) -> None:
        self.team, self.memory = team, memory
        self._halves: dict[tuple[torch.dtype, int], tuple[Tensor, Tensor]] = {}

    def takes(self, tensor: Tensor) -> bool:
        return tensor.device == self.memory.device and tensor.numel() > 0

    def halves(self, like: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
        """Return two arrays of ``count`` elements for calls of one round; None if these need more."""
        found = self._halves.get((like.dtype, count))
        if found is None:
            every = list(islice(self.rounds(like, count, 1), 2))
            if len(every) != 1:
                return None
            if len(self._halves) >= _MOST_KEPT:
                self._halves.clear()
            found = self._halves[like.dtype, count] = every[0][2:]
        return found

    def rounds(self, like: Tensor, count: int, blocks: int) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Yield (start, length, two arrays of ``blocks`` times length elements) until ``count`` elements are through."""
        half = self.memory.numel() // 2 // _ALIGNED * _ALIGNED
        most = half // (blocks * like.itemsize)
        for start in range(0, count, most):
            length = min(most, count - start)
            nbytes = blocks * length * like.itemsize
            one, two = (self.memory[first : first + nbytes].view(like.dtype) for first in (0, half))
            yield start, length, one, two


class Arena:
    """Where lanes are: all PEs allocate it together, and the members of a group agree on a place in it."""

    def __init__(self) -> None:
        self.memory: Tensor | None = None
        self._generation = -1
        self._taken: list[tuple[int, int]] = []

    def open(self) -> None:
        """Allocate, once for each init. Collective over all PEs."""
        if job.device == "cuda" and self._generation != job.generation:
            self.memory = shmem.empty(_ARENA, dtype=torch.uint8, device="cuda")
            self._generation, self._taken = job.generation, []

    def take(self, team: Team, comm: Any) -> Lane | None:
        """Return a lane, or None if there is no GPU or the team has no equal distances. Collective over the team's comm.

        Errors: HeapExhaustedError, on all members, if other groups have all lanes.
        """
        if self.memory is None or self._generation != job.generation or team.stride == 0 or team.meeting.spans:
            return None
        taken = sorted(each for some in comm.allgather(self._taken) for each in some)
        size = _MOST
        while (start := _gap(taken, size)) is None:
            size //= 2
            if size < _LEAST:
                wants = "destroy_process_group for groups that are not needed any more"
                refuse(HeapExhaustedError, "init_process_group", "group", f"{_ARENA} bytes of lanes, all taken", wants)
        self._taken.append((start, start + size))
        return Lane(team, self.memory[start : start + size])

    def give_back(self, lane: Lane | None) -> None:
        if lane is not None and self.memory is not None and self._generation == job.generation:
            start = lane.memory.data_ptr() - self.memory.data_ptr()
            self._taken = [each for each in self._taken if each[0] != start]


def _gap(taken: list[tuple[int, int]], size: int) -> int | None:
    """Return the first start of ``size`` bytes that nothing has taken, or None."""
    start = 0
    for first, last in taken:
        if first - start >= size:
            break
        start = max(start, last)
    return start if start + size <= _ARENA else None


arena = Arena()


def are_direct(target: Tensor, source: Tensor) -> bool:
    """Return whether both are symmetric, so that a call takes them where they are."""
    if target.is_complex():
        return shmem.is_symmetric(target) and shmem.is_symmetric(source)
    return _native.locate_pair(views, target, source) is not None


def _copy(target: Tensor, source: Tensor) -> None:
    """Copy contiguous memory on the current stream: in less of the host's time than by torch."""
    heaps[target.device.type].near.put(target.data_ptr(), source.data_ptr(), source.numel() * source.itemsize)


def reduce(lane: Lane | None, team: Team, target: Tensor, source: Tensor, op: Any) -> None:
    """``target`` may be ``source``."""
    if lane is None or not lane.takes(source):
        shmem.reduce(target, source, op, team=team)
    elif are_direct(target, source):
        shmem.reduce_on_stream(target, source, op, team=team)
    elif halves := lane.halves(source, source.numel()):
        _copy(halves[0], source)
        shmem.reduce_on_stream(halves[0], halves[0], op, team=team)
        _copy(target, halves[0])
    else:
        to, given = target.view(-1), source.view(-1)
        for start, length, one, _ in lane.rounds(source, source.numel(), 1):
            one.copy_(given[start : start + length])
            shmem.reduce_on_stream(one, one, op, team=team)
            to[start : start + length] = one


def broadcast(lane: Lane | None, team: Team, tensor: Tensor, root: int) -> None:
    if lane is None or not lane.takes(tensor):
        shmem.broadcast(tensor, tensor, root, team=team)
        return
    if are_direct(tensor, tensor):
        shmem.broadcast_on_stream(tensor, tensor, root, team=team)
        return
    flat = tensor.view(-1)
    for start, length, one, two in lane.rounds(tensor, tensor.numel(), 1):
        if team.me == root:
            one.copy_(flat[start : start + length])
        shmem.broadcast_on_stream(two, one, root, team=team)
        if team.me != root:
            flat[start : start + length] = two


def fcollect(lane: Lane | None, team: Team, target: Tensor, source: Tensor) -> None:
    if lane is None or not lane.takes(source):
        shmem.fcollect(target, source, team=team)
    elif are_direct(target, source):
        shmem.fcollect_on_stream(target, source, team=team, engine="auto")
    else:
        rows, flat = target.view(team.size, -1), source.view(-1)
        for start, length, one, two in lane.rounds(source, source.numel(), team.size):
            one[:length] = flat[start : start + length]
            shmem.fcollect_on_stream(two, one[:length], team=team)
            rows[:, start : start + length] = two.view(team.size, length)


def alltoall(lane: Lane | None, team: Team, target: Tensor, source: Tensor) -> None:
    if lane is None or not lane.takes(source):
        shmem.alltoall(target, source, team=team)
    elif are_direct(target, source):
        shmem.alltoall_on_stream(target, source, team=team, engine="auto")
    else:
        to, given = target.view(team.size, -1), source.view(team.size, -1)
        for start, length, one, two in lane.rounds(source, given.shape[1], team.size):
            one.view(team.size, length).copy_(given[:, start : start + length])
            shmem.alltoall_on_stream(two, one, team=team)
            to[:, start : start + length] = two.view(team.size, length)


def reduce_scatter(lane: Lane, team: Team, target: Tensor, source: Tensor, op: Any) -> None:
    """target: this member's block. Where there is no lane, reduce is as good."""
    if are_direct(target, source):
        shmem.reduce_scatter_on_stream(target, source, op, team=team)
        return
    to, given = target.view(-1), source.view(team.size, -1)
    for start, length, one, two in lane.rounds(source, to.numel(), team.size):
        one.view(team.size, length).copy_(given[:, start : start + length])
        shmem.reduce_scatter_on_stream(two[:length], one, op, team=team)
        to[start : start + length] = two[:length]
