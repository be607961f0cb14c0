"""The moves of collectives: for tensors in GPU memory on torch's current stream, else by the host's calls.

A symmetric tensor is used where it is; so is any other where no peer accesses it, as in small reductions. Else a tensor
passes through the group's lane, symmetric memory that it alone uses, in as many rounds as it needs. A call that has been
planned is one call of C if its tensors stay where they are, and else one for each copy and each kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import pyshmem as shmem
from pyshmem.base.errors import HeapExhaustedError, refuse
from pyshmem.base.job import job
from pyshmem.host.collectives import Pair, context_of
from pyshmem.host.streams import collectives as on_stream
from pyshmem.host.teams import Team
from pyshmem.kernels.bound_kernels import require_launched
from pyshmem.kernels.method_tables import SENT, WORDS
from pyshmem.kernels.plans import kernels, known
from pyshmem.memory.allocator import lowest_gap
from pyshmem.memory.areas import lent
from pyshmem.memory.heap import heaps, views
from pyshmem.native import _native
from pyshmem.transport.near_or_far import streams
from pyshmem.transport.teams.operators import OPERATORS

_ARENA = 192 << 20  # bytes of all lanes and the scratch memory of their teams
# bytes of one, of which a quarter is the lane: kernels with larger scratch memory are faster
_MOST, _LEAST = 64 << 20, 1 << 20
_ALIGNED = 64
_MOST_STAGED = 4096
# the calls, by launch_pair's keys, whose private arrays pass through the lane in one round: nothing is asked twice of them
_staged: set[Any] = set()
_RECORDED = shmem.reduce_on_stream is not on_stream.reduce_on_stream  # a checker or a timeline sees the public calls


class Lane(NamedTuple):
    """Symmetric memory of one team, whose calls on streams pass through it one after the other."""

    team: Team
    memory: Tensor

    def takes(self, tensor: Tensor) -> bool:
        return tensor.device == self.memory.device and tensor.numel() > 0

    def rounds(self, nbytes: int, blocks: int) -> Iterator[tuple[int, int]]:
        """Yield (first byte, bytes) until ``nbytes`` are through, as many at a time as ``blocks`` blocks have room for."""
        most = self.memory.numel() // blocks // _ALIGNED * _ALIGNED
        for first in range(0, nbytes, most):
            yield first, min(most, nbytes - first)


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

        The team's kernels get scratch memory beside the lane, three times as large.
        Errors: HeapExhaustedError, on all members, if other groups have all lanes.
        """
        if self.memory is None or self._generation != job.generation or team.stride == 0 or team.meeting.spans:
            return None
        taken = {each for some in comm.allgather(self._taken) for each in some}
        size, left = _MOST, _ARENA - sum(last - first for first, last in taken)
        while size > _LEAST and (3 * size > left or lowest_gap(taken, size, _ARENA) is None):
            size //= 2
        start = lowest_gap(taken, size, _ARENA)
        if start is None:
            wants = "destroy_process_group for groups that are not needed any more"
            refuse(HeapExhaustedError, "init_process_group", "group", f"{_ARENA} bytes of lanes, all taken", wants)
        self._taken.append((start, start + size))
        memory, scratch = self.memory[start : start + size].split([size // 4, size - size // 4])
        scratch.zero_()
        torch.cuda.synchronize()
        lent["cuda", team.area_index, job.generation] = scratch.data_ptr(), scratch.numel()
        _forget()
        comm.allgather(None)  # nobody uses scratch memory that is not clear yet
        return Lane(team, memory)

    def give_back(self, lane: Lane | None) -> None:
        """The team must end next: its area then has its own scratch memory again."""
        if lane is not None and self.memory is not None and self._generation == job.generation:
            start = lane.memory.data_ptr() - self.memory.data_ptr()
            self._taken = [each for each in self._taken if each[0] != start]
            _forget()


def _forget() -> None:
    """Forget what is planned for teams with an area whose scratch memory changes."""
    known.clear()
    _staged.clear()


arena = Arena()


def enqueue(lane: Lane, routine: str, detail: Any, target: Tensor, source: Tensor) -> bool:
    """Enqueue a call of on_stream on tensors where they are, if it is planned, or a reduction of private ones.

    Return whether it is done. The tensors are in any memory of this GPU, and detail is that of the public call's plan.
    """
    near, team = streams(), lane.team
    if near is None or _RECORDED or job.debug:
        return False
    asked = routine, detail, None, team.meeting.wires, job.generation
    code = _native.launch_pair(views, known, asked, asked[3], near.heap, near.use_stream(), target, source, True)
    if code == 0:
        return True
    if code is None:
        return False
    if code in _staged:
        _through(lane, detail, target.data_ptr(), source.data_ptr(), source, source.nbytes)
        return True
    if type(code) is int and code > 0:
        require_launched(f"{routine}_on_stream", code)
    if not (type(code) is int or _is_free(lane, routine, detail, target, source)):
        if routine == "reduce" and _fits(lane, detail, target, source):
            if len(_staged) >= _MOST_STAGED:
                _staged.clear()
            _staged.add(code)
        return False
    pair = Pair(near.heap, target.data_ptr(), source.data_ptr(), target.numel(), source.numel(), source.dtype)
    count = min(pair.room, pair.length)
    key, other = (None, code) if type(code) is int else (code, 0)
    on_stream.start(routine, detail, team, pair, count, key, other)
    return True


def _fits(lane: Lane, op: str, target: Tensor, source: Tensor) -> bool:
    """Return whether a reduction of private arrays passes through the lane in one round."""
    dtypes = kernels().NUMBERS.keys() & OPERATORS[op].dtypes
    alike = source.dtype in dtypes and target.numel() == source.numel()
    return alike and source.nbytes <= lane.memory.numel() and not _are_symmetric(target, source)


def _is_free(lane: Lane, routine: str, op: str, target: Tensor, source: Tensor) -> bool:
    """Return whether a reduction may take its arrays from private memory: no peer accesses them, and the kernel is that of
    symmetric ones, and of the lane where a peer's arrays are not aligned."""
    team, dtype, planner = lane.team, source.dtype, kernels()
    if routine != "reduce" or (target.data_ptr() | source.data_ptr()) & 3 or not _fits(lane, op, target, source):
        return False
    row, _ = planner.reduction_row(context_of(team), team.size, dtype, source.numel(), True)
    return row.kind in (WORDS, SENT)


def _are_symmetric(*tensors: Tensor) -> bool:
    return all(map(shmem.is_symmetric, tensors))


def _launch(lane: Lane, routine: str, detail: Any, like: Tensor, nbytes: int, dest: int, source: int) -> None:
    """Enqueue a call of on_stream on addresses. nbytes: of all elements, or of a block. like: a tensor of their type."""
    heap, wires = heaps["cuda"], lane.team.meeting.wires
    key = routine, detail, like.dtype, nbytes, (dest | source) & 3, wires, job.generation
    plan = known.get(key)
    other = plan and _native.compare_on_stream(wires, plan.word)
    if plan and not other:
        plan.launch(f"{routine}_on_stream", heap.near.use_stream(), dest, source)
        return
    count = nbytes // like.itemsize
    pair = Pair(heap, dest, source, count, count, like.dtype)
    on_stream.start(routine, detail, lane.team, pair, count, key, other or 0)


def _copy(like: Tensor, dest: int, source: int, nbytes: int) -> None:
    heaps[like.device.type].near.put(dest, source, nbytes)


def _gather(like: Tensor, blocks: int, dest: int, source: int, step: int, nbytes: int) -> None:
    """Copy ``nbytes`` of each block of ``step`` bytes, so that they follow each other."""
    for block in range(blocks):
        _copy(like, dest + block * nbytes, source + block * step, nbytes)


def _scatter(like: Tensor, blocks: int, dest: int, step: int, source: int, nbytes: int) -> None:
    """Copy ``nbytes`` to each block of ``step`` bytes: the inverse of _gather."""
    for block in range(blocks):
        _copy(like, dest + block * step, source + block * nbytes, nbytes)


def reduce(lane: Lane | None, team: Team, target: Tensor, source: Tensor, op: Any) -> None:
    """``target`` may be ``source``."""
    if lane is None or not lane.takes(source):
        shmem.reduce(target, source, op, team=team)
    elif enqueue(lane, "reduce", op, target, source):
        pass
    elif _are_symmetric(target, source):
        shmem.reduce_on_stream(target, source, op, team=team)
    else:
        to, given = target.data_ptr(), source.data_ptr()
        for first, some in lane.rounds(source.nbytes, 1):
            _through(lane, op, to + first, given + first, source, some)


def _through(lane: Lane, op: str, to: int, given: int, like: Tensor, nbytes: int) -> None:
    """Reduce what the lane has room for, of private memory."""
    at = lane.memory.data_ptr()
    _copy(like, at, given, nbytes)
    _launch(lane, "reduce", op, like, nbytes, at, at)
    _copy(like, to, at, nbytes)


def broadcast(lane: Lane | None, team: Team, tensor: Tensor, root: int) -> None:
    if lane is None or not lane.takes(tensor):
        shmem.broadcast(tensor, tensor, root, team=team)
    elif _are_symmetric(tensor):
        shmem.broadcast_on_stream(tensor, tensor, root, team=team)
    else:
        at, here = lane.memory.data_ptr(), tensor.data_ptr()
        for first, some in lane.rounds(tensor.nbytes, 1):
            _launch(lane, "broadcast", root, tensor, some, at, here + first)
            if team.me != root:
                _copy(tensor, here + first, at, some)


def fcollect(lane: Lane | None, team: Team, target: Tensor, source: Tensor) -> None:
    if lane is None or not lane.takes(source):
        shmem.fcollect(target, source, team=team)
    elif _are_symmetric(target, source):
        shmem.fcollect_on_stream(target, source, team=team, engine="auto")
    elif _are_symmetric(target):  # its peers write there, and read their own sources alone
        _launch(lane, "fcollect", "auto", source, source.nbytes, target.data_ptr(), source.data_ptr())
    else:
        at, to, given = (each.data_ptr() for each in (lane.memory, target, source))
        for first, some in lane.rounds(source.nbytes, team.size):
            _launch(lane, "fcollect", "kernel", source, some, at, given + first)
            _scatter(source, team.size, to + first, source.nbytes, at, some)


def alltoall(lane: Lane | None, team: Team, target: Tensor, source: Tensor) -> None:
    if lane is None or not lane.takes(source):
        shmem.alltoall(target, source, team=team)
    elif _are_symmetric(target, source):
        shmem.alltoall_on_stream(target, source, team=team, engine="auto")
    else:
        n, block = team.size, source.nbytes // team.size
        at, to, given = (each.data_ptr() for each in (lane.memory, target, source))
        for first, some in lane.rounds(block, 2 * n):
            _gather(source, n, at + n * some, given + first, block, some)
            _launch(lane, "alltoall", "kernel", source, some, at, at + n * some)
            _scatter(source, n, to + first, block, at, some)


def reduce_scatter(lane: Lane, team: Team, target: Tensor, source: Tensor, op: Any) -> None:
    """target: this member's block. Where there is no lane, reduce is as good."""
    if _are_symmetric(target, source):
        shmem.reduce_scatter_on_stream(target, source, op, team=team)
        return
    at, to, given = (each.data_ptr() for each in (lane.memory, target, source))
    if _are_symmetric(source):  # its peers read there, and write their own targets alone
        _launch(lane, "reduce_scatter", op, source, target.nbytes, to, given)
        return
    for first, some in lane.rounds(target.nbytes, team.size):
        _gather(source, team.size, at, given + first, target.nbytes, some)
        _launch(lane, "reduce_scatter", op, source, some, to + first, at)
