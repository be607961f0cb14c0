"""Collectives over PE_start, logPE_stride, PE_size, which OpenSHMEM 1.5 deprecated, and reductions of long double.

Each member reads the data that it needs from the others, between two barriers: after the first every source is ready, after
the second all reads are complete. The barrier of an active set uses three words of the caller's pSync, which are 0
(SHMEM_SYNC_VALUE) before and after: the arrival counter on the first PE, the release flag of each PE, and the length of its
contribution to collect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import pyshmem
from pyshmem.base.errors import ArgumentError, OutOfRangeError, refuse
from pyshmem.c_names.addresses import cells, exactly
from pyshmem.c_names.constants import SYNC_SIZE, SYNC_VALUE
from pyshmem.c_names.one_sided import span
from pyshmem.c_names.types import LONG_DOUBLE, TYPES, CType
from pyshmem.host.teams import member
from pyshmem.memory.arguments import count_of
from pyshmem.transport.teams.operators import OPERATORS


class ActiveSet:
    """PEs ``start + i * 2**log_stride`` of the world for i less than ``size``, including this PE."""

    def __init__(self, routine: str, start: int, log_stride: int, size: int, psync: Any) -> None:
        count = pyshmem.n_pes()
        start, stride = count_of(routine, "PE_start", start), 1 << count_of(routine, "logPE_stride", log_stride)
        size = count_of(routine, "PE_size", size)
        if size < 1 or start + (size - 1) * stride >= count:
            got = f"{size} PEs from {start} at stride {stride}"
            refuse(OutOfRangeError, routine, "PE_size", got, f"1 or more of the PEs 0 to {count - 1}")
        self.pes = range(start, start + size * stride, stride)
        if pyshmem.my_pe() not in self.pes:
            refuse(
                ArgumentError, routine, "PE_start", f"the PEs {list(self.pes)}", "an active set that includes this PE"
            )
        self.me = self.pes.index(pyshmem.my_pe())
        psync = exactly(routine, "pSync", psync, TYPES["long"], SYNC_SIZE)
        self.arrived, self.released, self.length = psync[0:1], psync[1:2], psync[2:3]

    def sync(self) -> None:
        """Wait until all members have called sync. Each PE resets its words before another PE can write them again.

        It does so by swaps, which are complete when they return. A set might take effect after the next sync has begun.
        """
        first = self.pes[0]
        if self.me:
            pyshmem.atomic_inc(self.arrived, first)
            pyshmem.wait_until(self.released, "==", 1)
            pyshmem.atomic_swap(self.released, SYNC_VALUE, self.pes[self.me])
            return
        pyshmem.wait_until(self.arrived, "==", len(self.pes) - 1)
        pyshmem.atomic_swap(self.arrived, SYNC_VALUE, first)
        for pe in self.pes[1:]:
            pyshmem.atomic_set(self.released, 1, pe)

    def meet(self) -> None:
        """Complete all operations of this PE, so that its source is ready, then sync."""
        pyshmem.quiet()
        self.sync()


class TeamSet:
    """The members of a team, with the interface of ActiveSet, for types that the Python API does not support."""

    def __init__(self, routine: str, team: Any) -> None:
        self.team = member(routine, team)
        self.me = self.team.my_pe()
        self.pes = [self.team._world_pe(routine, pe) for pe in range(self.team.n_pes())]

    def meet(self) -> None:
        pyshmem.quiet()
        pyshmem.sync(self.team)


def sync(routine: str, *active_set: Any) -> None:
    ActiveSet(routine, *active_set).sync()


def barrier(routine: str, *active_set: Any) -> None:
    ActiveSet(routine, *active_set).meet()


def broadcast(host: Any, entry: Any) -> Any:
    """Unlike the team form, this does not write the root's own dest."""
    name, kind = entry.name, entry.type

    def call(dest: Any, source: Any, nelems: int, PE_root: int, /, *active_set: Any) -> None:
        group = ActiveSet(name, *active_set)
        root = count_of(name, "PE_root", PE_root)
        if root >= len(group.pes):
            refuse(OutOfRangeError, name, "PE_root", str(root), f"an index into the {len(group.pes)} PEs of the set")
        to, own = cells(name, "dest", dest, kind, nelems), cells(name, "source", source, kind, nelems)
        group.meet()
        if group.me != root:
            pyshmem.get(to, own, group.pes[root], nelems)
        group.meet()

    return call


def collect(host: Any, entry: Any) -> Any:
    """Each PE stores its length in its pSync and puts its part into every dest. fcollect is the case of equal lengths."""
    name, kind = entry.name, entry.type

    def call(dest: Any, source: Any, nelems: int, /, *active_set: Any) -> None:
        group = ActiveSet(name, *active_set)
        nelems = count_of(name, "nelems", nelems)
        own = cells(name, "source", source, kind, nelems)
        pyshmem.atomic_set(group.length, nelems, group.pes[group.me])
        group.meet()
        lengths = [pyshmem.atomic_fetch(group.length, pe) for pe in group.pes]
        first = sum(lengths[: group.me])
        if nelems:
            part = cells(name, "dest", dest, kind, sum(lengths)).reshape(-1)[first : first + nelems]
            for pe in group.pes:
                pyshmem.put(part, own, pe, nelems)
        group.meet()
        pyshmem.atomic_set(group.length, SYNC_VALUE, group.pes[group.me])

    return call


def alltoall(host: Any, entry: Any) -> Any:
    """Copy block k of source to dest on member k, at the block with the number of this PE."""
    name, kind = entry.name, entry.type

    def call(dest: Any, source: Any, nelems: int, /, *active_set: Any) -> None:
        _alltoalls(name, kind, dest, source, 1, 1, nelems, ActiveSet(name, *active_set))

    return call


def alltoalls(host: Any, entry: Any) -> Any:
    """alltoall with stride sst in source and dst in dest."""
    name, kind = entry.name, entry.type

    def call(dest: Any, source: Any, dst: int, sst: int, nelems: int, /, *active_set: Any) -> None:
        _alltoalls(name, kind, dest, source, dst, sst, nelems, ActiveSet(name, *active_set))

    return call


def _alltoalls(
    name: str, kind: CType, dest: Any, source: Any, dst: int, sst: int, nelems: int, group: ActiveSet
) -> None:
    dst, sst, nelems = (count_of(name, *each) for each in (("dst", dst), ("sst", sst), ("nelems", nelems)))
    total = nelems * len(group.pes)
    to = exactly(name, "dest", dest, kind, span(name, "dst", dst, total))
    own = exactly(name, "source", source, kind, span(name, "sst", sst, total))
    group.meet()
    if nelems:
        for k, pe in enumerate(group.pes):
            pyshmem.iput(to[group.me * nelems * dst :], own[k * nelems * sst :], pe, dst, sst, nelems)
    group.meet()


def to_all(host: Any, entry: Any) -> Any:
    """The reductions: (dest, source, nreduce, active set, pWrk, pSync); pWrk is not used."""
    name, operator = entry.name, entry.row.host.removesuffix("_reduce")

    def call(
        dest: Any, source: Any, nreduce: int, PE_start: int, logPE_stride: int, PE_size: int, pWrk: Any, pSync: Any, /
    ) -> None:
        group = ActiveSet(name, PE_start, logPE_stride, PE_size, pSync)
        combine(entry, operator, group, dest, source, nreduce, group.pes)

    return call


def combine(entry: Any, operator: str, group: Any, dest: Any, source: Any, count: int, pes: Any) -> None:
    """Combine the sources of ``pes``, in their order, into dest: all members get the same bits. Zeros if pes is empty."""
    to, own = (_computable(entry, *each, count) for each in (("dest", dest), ("source", source)))
    numpy = isinstance(own, np.ndarray)
    operate = OPERATORS[operator].numpy if numpy else OPERATORS[operator].torch
    total, part = ((np if numpy else torch).zeros_like(own) for _ in range(2))
    group.meet()
    for k, pe in enumerate(pes):
        pyshmem.get(part if k else total, own, pe, count)
        if k:
            operate(total, part, out=total)
    group.meet()  # dest may be source: all reads are complete
    if numpy:
        to[:] = total
    else:
        to.copy_(total)


def _computable(entry: Any, argument: str, where: Any, count: int) -> Any:
    """The operand as a torch tensor, or as a NumPy array for long double."""
    found = exactly(entry.name, argument, where, entry.type, count)
    return np.asarray(found).view(entry.type.numpy) if entry.type is LONG_DOUBLE else torch.as_tensor(found)
