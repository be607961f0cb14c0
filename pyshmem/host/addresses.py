"""Addresses of symmetric memory: tables for kernels that translate addresses themselves, and arrays of C programs.

The kernels are those written for Iris or torch's symmetric memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, NotSymmetricError, refuse
from pyshmem.base.job import job
from pyshmem.host.allocation import heap_for
from pyshmem.host.teams import Team, member
from pyshmem.memory.arguments import Array, as_dtype, count_of, describe, require_init, require_symmetric
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import Device, Heap, heaps

__all__ = ["c_address", "from_address", "heap_bases", "peer_addresses"]


def heap_bases(device: Device | torch.device | None = None) -> torch.Tensor:
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


def from_address(address: int, shape: int | Sequence[int], dtype: Any) -> torch.Tensor:
    """Return a tensor on symmetric memory that C code has allocated, or on static data of a C program.

    address: C's pointer, as an int: of shmem_malloc, or into its memory; or of a variable that is symmetric.
    shape, dtype: of the tensor, which is contiguous.
    Returns: a symmetric tensor, which does not keep the memory alive.
    Order: the call is local.
    Errors: NotSymmetricError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError.
    """
    require_init("from_address")
    if isinstance(address, bool) or not isinstance(address, int):
        refuse(ArgumentError, "from_address", "address", repr(address), "an int")
    extents = [shape] if isinstance(shape, int) else list(shape)
    extents, kind = [count_of("from_address", "shape", each) for each in extents], as_dtype("from_address", dtype)
    nbytes = kind.itemsize
    for extent in extents:
        nbytes *= extent
    place = cpu.unaliased(address)
    for heap in heaps.values():
        if place % kind.itemsize == 0 and heap.allocator.covers(place - heap.base, nbytes):
            return heap.tensor(place, extents, kind)
    got, wants = f"{nbytes} bytes at {address:#x}", "live symmetric memory that holds them, aligned for the dtype"
    refuse(NotSymmetricError, "from_address", "address", got, wants)


def c_address(array: Array) -> int:
    """Return the address of a symmetric array as an int, which C code takes for a symmetric pointer.

    array: symmetric, contiguous, of any shape and dtype, or a view of one. It must be alive while C uses the address.
    Order: the call is local.
    Errors: NotSymmetricError, ArgumentError, NotInitializedError.
    """
    require_init("c_address")
    operand = describe("c_address", "array", array)
    require_symmetric("c_address", "array", operand, operand.nelems * operand.itemsize)
    return operand.address


def _table(heap: Heap, address: int, pes: Iterable[int]) -> torch.Tensor:
    away = [heap.deltas.get(pe) for pe in pes]
    where = torch.device(heap.device, heap.index) if heap.streams else "cpu"
    return torch.tensor([0 if each is None else address + each for each in away], dtype=torch.int64, device=where)
