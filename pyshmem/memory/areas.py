"""The areas of teams. init reserves PYSHMEM_MAX_TEAMS areas beside the heap; the members of a new team agree on one.

An area is named by its index and has the same offset on every PE. Teams that have no PE in common may use the same index.
Each area comes with a part of the scratch memory that kernel collectives use: TEAM_WORLD has one half of it, and the other
areas share the other half in equal parts. So it is with the staging memory, through which collectives pass private arrays.
A team may have been lent larger scratch memory of the heap.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import AREAS_BYTES, NOTE_BYTES, Heap, heaps
from pyshmem.native import _native

if TYPE_CHECKING:
    Team = Any  # pyshmem.host.teams

RESERVED = 2  # areas of TEAM_WORLD and TEAM_SHARED
SYNC_BYTES = 2048  # bytes at the beginning of an area that barriers use
NUMBERS = 64  # offset of the words of kernel barriers: for each PE, the number of its last barrier
MOST_PES = (SYNC_BYTES - NUMBERS) // 8  # the most PEs of a team that can use barriers in kernels
MOST = 1000  # the most areas: a mask of the free ones fits into a note of _native.share


class Pool:
    """The areas of this PE: the free ones, the teams that use the others, and the teams that are being split now.

    Threads may split different teams at once, so only one of them offers areas at a time: the one whose parent team has
    the lowest area index. All PEs come to choose the same one.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.teams: dict[int, Team] = {}
        self.close()

    def open(self, size: int) -> None:
        """Provide ``size`` areas. Errors: ArgumentError if the memory beside the heap is too small for them."""
        most = min(MOST, (AREAS_BYTES - NOTE_BYTES) // area_bytes())
        if not RESERVED <= size <= most:
            refuse(ArgumentError, "init", "PYSHMEM_MAX_TEAMS", str(size), f"{RESERVED} to {most}, with {job.n_pes} PEs")
        self.size = size
        self.free = (1 << size) - (1 << RESERVED)

    def close(self) -> None:
        """End every team."""
        for team in self.teams.values():
            team._leave()
        self.teams = {}
        self.size = self.free = 0
        self.splitting: set[int] = set()
        self.turn = -1
        self.stamp = 0  # of the last team: each has another one than those whose areas it may have

    def agree(self, routine: str, parent: Team) -> int | None:
        """Return the lowest index that is free on all members of ``parent``, or None if there is none.

        All members get the same result. The area is reserved until ``take``. Collective over ``parent``.
        """
        while True:
            offered = self._offer(parent.area_index).to_bytes(128, "little", signed=True)
            notes = parent.meeting.share(routine, offered + self.stamp.to_bytes(8, "little"))
            offers = [int.from_bytes(note[:128], "little", signed=True) for note in notes]
            if -1 not in offers:
                break
            with self.lock:
                if self.turn == parent.area_index:
                    self.turn = -1
        self.stamp = 1 + max(int.from_bytes(note[128:], "little") for note in notes)
        common = offers[0]
        for offer in offers[1:]:
            common &= offer
        if not common:
            self.take(parent, -1, None)
            return None
        return (common & -common).bit_length() - 1

    def _offer(self, index: int) -> int:
        """Return the free areas as a mask, or -1 while another split has its turn."""
        with self.lock:
            self.splitting.add(index)
            if self.turn < 0 and index == min(self.splitting):
                self.turn = index
            return self.free if self.turn == index else -1

    def take(self, parent: Team, index: int, team: Team | None) -> None:
        """End the split of ``parent``: ``team`` uses the area, or it stays free on this PE if ``team`` is None."""
        with self.lock:
            self.splitting.discard(parent.area_index)
            self.turn = -1
            if team is not None:
                self.free &= ~(1 << index)
                self.teams[index] = team

    def reserve(self, index: int, team: Team) -> bool:
        """Let ``team`` use the area if it is free on this PE and no team is being split. Return whether it does."""
        with self.lock:
            free = self.turn < 0 and bool(self.free >> index & 1)
            if free:
                self.free &= ~(1 << index)
                self.teams[index] = team
            return free

    def release(self, index: int) -> None:
        """Free an area on this PE. Scratch memory that its team was lent is no part of it any more."""
        with self.lock:
            del self.teams[index]
            for key in [each for each in lent if each[1] == index]:
                del lent[key]
            self.free |= 1 << index

    def give_back(self, team: Team) -> None:
        """End ``team`` and free its area on this PE."""
        self.release(team.area_index)
        team._leave()


pool = Pool()
lent: dict[tuple[str, int, int], tuple[int, int]] = {}  # scratch memory, by the heap's device, the area and the job
wires: dict[int, Any] = {}  # what the native module knows of a team with a device context, by the address of its area


def area_bytes() -> int:
    """Return the size of an area in bytes."""
    return int(_native.area_bytes(job.n_pes))


def area(index: int, heap: Heap = cpu) -> int:
    """Return the address of an area on this PE. Host barriers use areas in CPU memory, kernels those of their heap."""
    return heap.system + index * area_bytes()


def scratch(heap: Heap, index: int) -> tuple[int, int]:
    """Return (address on this PE, bytes) of the scratch memory of an area."""
    own = lent.get((heap.device, index, job.generation))
    return own or _part(heap.system + AREAS_BYTES, heap.scratch_bytes, index)


def staging(heap: Heap, index: int) -> tuple[int, int]:
    """Return (address on this PE, bytes) of the staging memory of an area."""
    return _part(heap.system + AREAS_BYTES + heap.scratch_bytes, heap.staging_bytes, index)


def _part(start: int, nbytes: int, index: int) -> tuple[int, int]:
    half = nbytes // 2
    if index == 0:
        return start, half
    each = half // (pool.size - 1) // 64 * 64
    return start + half + (index - 1) * each, each


def clear(index: int) -> None:
    """Clear the area and its scratch memory on this PE, in every heap: an earlier team may have used them."""
    for heap in heaps.values():
        heap.bytes_at(area(index, heap), area_bytes()).zero_()
        start, nbytes = scratch(heap, index)
        heap.tensor(start, (nbytes,), torch.uint8).zero_()  # a small PYSHMEM_SCRATCH has none for this area
        heap.synchronize()


def begin(index: int, stamp: int = 0) -> None:
    """Prepare the area for kernel barriers, which are numbered from 0. In CPU memory, host barriers use these words.

    stamp: a number below 2**40 that tells the team from earlier ones, the same on all members.
    """
    _native.stamp(area(index), stamp)
    for heap in heaps.values():
        if heap is not cpu:
            heap.bytes_at(area(index, heap) + NUMBERS, SYNC_BYTES - NUMBERS).fill_(255)  # -1
            heap.synchronize()
