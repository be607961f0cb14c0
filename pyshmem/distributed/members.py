"""The team of a process group. Its members, any PEs in any order, make it among themselves, through the group's store."""

from __future__ import annotations

import os
from typing import Any

import pyshmem as shmem
from pyshmem.distributed.lanes import Lane, arena
from pyshmem.distributed.messages import mailbox
from pyshmem.host.teams import Team
from pyshmem.runtime import how_started
from pyshmem.runtime.areas import begin, clear, pool
from pyshmem.runtime.bootstrap import StoreComm
from pyshmem.runtime.errors import ArgumentError, HeapExhaustedError, LaunchError, refuse
from pyshmem.runtime.job import job

ROUTINE = "init_process_group"


class GroupTeam(Team):
    """A team of any PEs in any order. Kernels and collectives on streams need equal distances, as other teams have."""

    __slots__ = ("number", "pes")

    def __init__(self, name: str, pes: list[int], number: int) -> None:
        """number: even, of this group alone, also among those of the name that have ended."""
        self.pes, self.number = pes, number
        super().__init__(name)

    def _world_pe(self, routine: str, pe: int, argument: str = "pe") -> int:
        super()._world_pe(routine, pe, argument)
        return self.pes[pe]

    def _world_pes(self) -> list[int]:
        return self.pes

    def enter(self, me: int, index: int) -> None:
        """Become a team, with the area of this index. Collective over the members."""
        steps = {after - before for before, after in zip(self.pes, self.pes[1:], strict=False)} or {1}
        self._enter(self.pes[0], steps.pop() if len(steps) == 1 else 0, len(self.pes), me, index)
        clear(index)
        begin(index, self.number >> 1 & (1 << 40) - 1)


def start(group: Any) -> None:
    """Call init if the program has not: by the group's store, unless a launcher of MPI connects the processes."""
    if not shmem.query_initialized():
        by_store = how_started.is_torchs() or not how_started.is_mpis()
        shmem.init(group if by_store else None)


def form(name: str, store: Any, rank: int, size: int, of_all: bool) -> tuple[GroupTeam, Lane | None]:
    """Return the team of the processes that call this on ``store``, PE i of it is rank i, and its lane.

    of_all: the group is torch's default one, which must have all PEs.
    Errors: LaunchError if it has not; ArgumentError if PYSHMEM_MAX_TEAMS teams exist; those of Arena. On all members alike.
    """
    comm = StoreComm(store, rank, size)
    numbers, pes = zip(*comm.allgather((int.from_bytes(os.urandom(7), "little") * 2, job.my_pe)), strict=True)
    if of_all and sorted(pes) != list(range(job.n_pes)):
        refuse(LaunchError, ROUTINE, "world_size", f"{size} processes", f"all {job.n_pes} PEs, once each")
    team = GroupTeam(f"process group {name}", list(pes), numbers[0])
    while True:
        common = -1
        for free in comm.allgather(pool.free):
            common &= free
        if not common:
            wants = "more by this variable, or destroy_process_group for groups that are not needed any more"
            refuse(ArgumentError, ROUTINE, "PYSHMEM_MAX_TEAMS", f"{pool.size} teams, which all exist", wants)
        index = (common & -common).bit_length() - 1
        reserved = pool.reserve(index, team)
        if all(comm.allgather(reserved)):
            break
        if reserved:
            pool.release(index)
    team.enter(rank, index)
    comm.allgather(None)  # nobody uses an area that is not clear yet
    if of_all:
        mailbox.open()
        arena.open()
    try:
        return team, arena.take(team, comm)
    except HeapExhaustedError:
        pool.give_back(team)
        raise
