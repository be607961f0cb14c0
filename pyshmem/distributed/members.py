"""The team of a process group. Its members, any PEs in any order, make it among themselves, through the group's store."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import pyshmem as shmem
from pyshmem.base.bootstrap import StoreComm
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, LaunchError, WaitTimeoutError, listed, refuse
from pyshmem.base.job import job
from pyshmem.distributed.differences import GroupMeeting
from pyshmem.distributed.lanes import Lane, arena
from pyshmem.distributed.messages import mailbox
from pyshmem.host.teams import Team
from pyshmem.memory.areas import begin, clear, pool
from pyshmem.start import how_started

_FOREVER = timedelta(days=30)
_life: list[int] = []  # the number of torch's default group: another one may use its store and its names anew


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
        self.meeting = GroupMeeting(self.name, self.pes, me, index)
        clear(index)
        begin(index, self.number >> 1 & (1 << 40) - 1)


def start(group: Any) -> None:
    """Call init if the program has not: by the group's store, unless a launcher of MPI connects the processes."""
    if not shmem.query_initialized():
        by_store = how_started.is_torchs() or not how_started.is_mpis()
        shmem.init(group if by_store else None)


def form(name: str, store: Any, rank: int, size: int, ranks: Sequence[int]) -> tuple[GroupTeam, Lane | None]:
    """Return the team of the processes that call this on ``store``, PE i of it is rank i, and its lane.

    ranks: those of the group, as torch's default group counts; none for that group itself, which must have all PEs.
    Errors: LaunchError if it has not; ArgumentError for processes that name other ranks, and if PYSHMEM_MAX_TEAMS teams
        exist; those of Arena. On all members alike. WaitTimeoutError.
    """
    routine = "new_group" if ranks else "init_process_group"
    own = _agreed(routine, name, store, rank, list(ranks)) if ranks else store
    comm = StoreComm(own, rank, size)
    numbers, pes = zip(*comm.allgather((int.from_bytes(os.urandom(7), "little") * 2, job.my_pe)), strict=True)
    if not ranks and sorted(pes) != list(range(job.n_pes)):
        refuse(LaunchError, routine, "world_size", f"{size} processes", f"all {job.n_pes} PEs, once each")
    team = GroupTeam(f"process group {name}, {listed(list(pes))}" if ranks else "all PEs", list(pes), numbers[0])
    while True:
        common = -1
        for free in comm.allgather(pool.free):
            common &= free
        if not common:
            wants = "more by this variable, or destroy_process_group for groups that are not needed any more"
            refuse(ArgumentError, routine, "PYSHMEM_MAX_TEAMS", f"{pool.size} teams, which all exist", wants)
        index = (common & -common).bit_length() - 1
        reserved = pool.reserve(index, team)
        if all(comm.allgather(reserved)):
            break
        if reserved:
            pool.release(index)
    team.enter(rank, index)
    comm.allgather(None)  # nobody uses an area that is not clear yet
    if not ranks:
        _life.clear()
        _life.append(team.number)
        mailbox.open()
        arena.open()
    try:
        return team, arena.take(team, comm)
    except HeapExhaustedError:
        pool.give_back(team)
        raise


def _agreed(routine: str, name: str, store: Any, rank: int, ranks: list[int]) -> Any:
    """Return the store of the processes that make the group of these ranks under this name. Collective over the ranks.

    torch counts the calls of new_group, so groups that processes make in one call have one name and one store.
    Errors: ArgumentError if one of the ranks names others; WaitTimeoutError.
    """
    keys = [f"pyshmem {_life} {each}" for each in ranks]
    store.set(keys[rank], json.dumps(ranks))
    try:
        store.wait(keys, timedelta(seconds=job.timeout) if job.timeout else _FOREVER)
    except dist.DistStoreError:
        absent = [each for each, key in zip(ranks, keys, strict=True) if not store.check([key])]
        got = f"no call from {_named(absent)} in {job.timeout:g} s"
        refuse(
            WaitTimeoutError, routine, "ranks", got, f"a call of {_named(ranks)}; PYSHMEM_WAIT_TIMEOUT sets the seconds"
        )
    for each, key in zip(ranks, keys, strict=True):
        theirs = json.loads(store.get(key))
        if theirs != ranks:
            got = f"{ranks} on rank {ranks[rank]} and {theirs} on rank {each}"
            refuse(ArgumentError, routine, "ranks", got, f"one list on all its ranks, in call {name} of new_group")
    digest = hashlib.sha256(json.dumps(ranks).encode()).hexdigest()[:16]
    return dist.PrefixStore(f"pyshmem of {digest}", store)


def _named(ranks: list[int]) -> str:
    return listed(ranks).replace("PE", "rank", 1)
