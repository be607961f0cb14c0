"""Tables of addresses, for kernels written for Iris or torch's symmetric memory, which translate addresses themselves."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pyshmem.host.memory import heap_for
from pyshmem.host.teams import Team, member
from pyshmem.runtime.arguments import Array, describe, require_init, require_symmetric
from pyshmem.runtime.heap import Heap
from pyshmem.runtime.job import job


def heap_bases(device: str | None = None) -> torch.Tensor:
    """Return the address at which loads and stores of this PE find the heap of each PE, as Iris's get_heap_bases.

    device: "cuda" or "cpu", the heap; None is the default heap.
    Returns: a private int64 tensor of n_pes elements on that device; 0 for a PE that loads and stores do not reach. A
        symmetric address minus the element of this PE plus that of another is the address there, until finalize.
    Order: the call is local. Accesses are plain loads and stores; fence and quiet do not cover those of kernels.
    Errors: ArgumentError, NotInitializedError.
    """
    require_init("heap_bases")
    heap = heap_for("heap_bases", device)
    return _table(heap, heap.base, range(job.n_pes))


def peer_addresses(target: Array, team: Team | None = None) -> torch.Tensor:
    """Return the address of ``target`` on each PE of ``team``, as buffer_ptrs_dev of torch's symmetric memory.

    target: a symmetric, contiguous array of any shape and dtype, or a view of one. An array of zeros of uint32 gives what
        signal_pad_ptrs_dev gives: a kernel that leaves its signals at 0 may use it again.
    team: a team of this PE; None is TEAM_WORLD.
    Returns: a private int64 tensor of an element for each PE, beside target; 0 for a PE that loads and stores do not reach.
        Its data_ptr() is what such a kernel takes. The addresses hold until target is freed.
    Order: the call is local. Accesses are plain loads and stores; fence and quiet do not cover those of kernels.
    Errors: NotSymmetricError, ArgumentError, NotInitializedError.
    """
    group = member("peer_addresses", team)
    operand = describe("peer_addresses", "target", target)
    require_symmetric("peer_addresses", "target", operand, operand.nelems * operand.itemsize)
    pes = (
        range(group.start, group.start + group.size * group.stride, group.stride) if group.size > 1 else (group.start,)
    )
    return _table(operand.heap, operand.address, pes)


def _table(heap: Heap, address: int, pes: Iterable[int]) -> torch.Tensor:
    away = [heap.deltas.get(pe) for pe in pes]
    where = torch.device(heap.device, heap.index) if heap.streams else "cpu"
    return torch.tensor([0 if each is None else address + each for each in away], dtype=torch.int64, device=where)
