"""The areas of teams: init reserves those of PYSHMEM_MAX_TEAMS beside the heap, and a new team's members agree on one.

An area is named by its slot and lies at the same place on every PE. Teams without a common PE may have the same slot. With
it goes a part of the scratch that kernels' collectives use: half of all for TEAM_WORLD, the rest in equal parts.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyshmem.runtime import _native
from pyshmem.runtime.cpu_heap import cpu
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.heap import AREAS_BYTES, Heap, heaps
from pyshmem.runtime.job import job

if TYPE_CHECKING:
    from typing import Any

    Team = Any  # pyshmem.host.teams

RESERVED = 2  # TEAM_WORLD's and TEAM_SHARED's
SYNC_BYTES = 2048  # of an area, at its begin: for barriers
NUMBERS = 64  # of those, before what kernels' barriers have: the number of the one that each PE came to last
MOST_PES = (SYNC_BYTES - NUMBERS) // 8  # of a team whose kernels have barriers
MOST = 1000  # a mask of the free ones fits the note of _native.share


class Pool:
    """This PE's slots: which are free, who has the others, and which teams are being split at this moment.

    Threads may split different teams at once, so only one of them offers slots at a time: that of the lowest slot, which
    is the same one on all PEs in the end.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.teams: dict[int, Team] = {}
        self.close()

    def open(self, slots: int) -> None:
        """Errors: ArgumentError where the memory beside the heap does not suffice for so many."""
        most = min(MOST, AREAS_BYTES // area_bytes())
        if not RESERVED <= slots <= most:
            refuse(
                ArgumentError, "init", "PYSHMEM_MAX_TEAMS", str(slots), f"{RESERVED} to {most}, with {job.n_pes} PEs"
            )
        self.slots = slots
        self.free = (1 << slots) - (1 << RESERVED)

    def close(self) -> None:
        """Every team that was formed is none from now on."""
        for team in self.teams.values():
            team.leave()
        self.teams = {}
        self.slots = self.free = 0
        self.splitting: set[int] = set()
        self.turn = -1

    def agree(self, routine: str, parent: Team) -> int | None:
        """The lowest slot that is free on all members of ``parent``, the same on all; None where there is none.

        It is nobody else's until ``take``. Collective over the parent.
        """
        while True:
            notes = parent.meeting.share(routine, self._offer(parent.slot).to_bytes(128, "little", signed=True))
            offers = [int.from_bytes(note, "little", signed=True) for note in notes]
            if -1 not in offers:
                break
            with self.lock:
                if self.turn == parent.slot:
                    self.turn = -1
        common = offers[0]
        for offer in offers[1:]:
            common &= offer
        if not common:
            self.take(parent, -1, None)
            return None
        return (common & -common).bit_length() - 1

    def _offer(self, slot: int) -> int:
        """What is free, as a mask, or -1 while another split has its turn."""
        with self.lock:
            self.splitting.add(slot)
            if self.turn < 0 and slot == min(self.splitting):
                self.turn = slot
            return self.free if self.turn == slot else -1

    def take(self, parent: Team, slot: int, team: Team | None) -> None:
        """End the parent's split: ``slot`` is ``team``'s, or for None still free here."""
        with self.lock:
            self.splitting.discard(parent.slot)
            self.turn = -1
            if team is not None:
                self.free &= ~(1 << slot)
                self.teams[slot] = team

    def give_back(self, team: Team) -> None:
        with self.lock:
            del self.teams[team.slot]
            self.free |= 1 << team.slot
            team.leave()


pool = Pool()


def area_bytes() -> int:
    return int(_native.area_bytes(job.n_pes))


def area(slot: int, heap: Heap = cpu) -> int:
    """The address here of a slot's area: the host's barriers are in CPU memory, those of kernels in their heap."""
    return heap.system + slot * area_bytes()


def scratch(heap: Heap, slot: int) -> tuple[int, int]:
    """(address here, bytes) of a slot's scratch."""
    start, half = heap.system + AREAS_BYTES, heap.scratch_bytes // 2
    if slot == 0:
        return start, half
    each = half // (pool.slots - 1) // 64 * 64
    return start + half + (slot - 1) * each, each


def clear(slot: int) -> None:
    """Forget what an earlier team left in the area and the scratch here, on every heap."""
    for heap in heaps.values():
        heap.bytes_at(area(slot, heap), area_bytes()).zero_()
        heap.bytes_at(*scratch(heap, slot)).zero_()
        heap.synchronize()


def begin(slot: int) -> None:
    """No PE has come to a barrier of kernels yet: the first one is number 0. In CPU memory the host's are in that place."""
    for heap in heaps.values():
        if heap is not cpu:
            heap.bytes_at(area(slot, heap) + NUMBERS, SYNC_BYTES - NUMBERS).fill_(255)  # -1
            heap.synchronize()
