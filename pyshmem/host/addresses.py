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
    """Return the base address of each PE's heap, as it is mapped into this PE, as Iris's get_heap_bases does.

    device: "cuda" or "cpu", the heap; None is the default heap.
    Returns: a private int64 tensor of n_pes elements on that device; 0 for a PE that loads and stores do not reach. To
        translate a symmetric address, subtract the element of this PE and add that of the target. Valid until finalize.
    Order: the call is local. Accesses are plain loads and stores; fence and quiet do not cover those of kernels.
    Errors: ArgumentError, NotInitializedError.
    """
    require_init("heap_bases")
    heap = heap_for("heap_bases", device)
    return _table(heap, heap.base, range(job.n_pes))


def peer_addresses(target: Array, team: Team | None = None) -> torch.Tensor:
    """Return the address of ``target`` on each PE of ``team``, as buffer_ptrs_dev of torch's symmetric memory does.

    target: a symmetric, contiguous array of any shape and dtype, or a view of one. An array of zeros of uint32 gives what
        signal_pad_ptrs_dev gives: a kernel that leaves its signals at 0 may use it again.
    team: a team of this PE; None is TEAM_WORLD.
    Returns: a private int64 tensor with one element per PE, on target's device; 0 for a PE that loads and stores do not
        reach. Such a kernel takes its data_ptr(). The addresses are valid until target is freed.
    Order: the call is local. Accesses are plain loads and stores; fence and quiet do not cover those of kernels.
    Errors: NotSymmetricError, ArgumentError, NotInitializedError.
    """
    group = member("peer_addresses", team)
    operand = describe("peer_addresses", "target", target)
    require_symmetric("peer_addresses", "target", operand, operand.nelems * operand.itemsize)
    return _table(operand.heap, operand.address, group._world_pes())


def _table(heap: Heap, address: int, pes: Iterable[int]) -> torch.Tensor:
    away = [heap.deltas.get(pe) for pe in pes]
    where = torch.device(heap.device, heap.index) if heap.streams else "cpu"
    return torch.tensor([0 if each is None else address + each for each in away], dtype=torch.int64, device=where)
