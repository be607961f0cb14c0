"""shmem.from_dtensor: a DTensor of torch as a partitioned tensor, on the same memory."""

from __future__ import annotations

import math
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, NotSymmetricError, refuse
from pyshmem.host.partitioned.layout import Layout
from pyshmem.host.partitioned.placements import layout_placed, require_members
from pyshmem.host.partitioned.tensor import PartitionedTensor
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.memory.arguments import an, require_init
from pyshmem.memory.heap import heaps


def from_dtensor(dtensor: Any, *, team: Team | None = None) -> PartitionedTensor:
    """Return a partitioned tensor on the memory of a DTensor of torch, without a copy.

    dtensor: placed by Shard and Replicate. Its local tensors are symmetric memory, at one heap offset on all PEs, as those
        of PartitionedTensor.to_dtensor are, or what torch has made in shmem.pool. They live as long as the result.
    team: the PEs of its mesh, in their order; None is TEAM_WORLD.
    Returns: a tensor whose ``free`` is refused: the memory belongs to who has made it.
    Order: collective over the team.
    Errors: ArgumentError for a mesh of other PEs or what no layout is; NotSymmetricError for other memory, on all PEs.
    """
    require_init("from_dtensor")
    group = member("from_dtensor", TEAM_WORLD if team is None else team)
    if not hasattr(dtensor, "to_local") or not hasattr(dtensor, "placements"):
        refuse(ArgumentError, "from_dtensor", "dtensor", an(type(dtensor).__name__), "a DTensor of torch")
    mesh, local = dtensor.device_mesh, dtensor.to_local().detach()
    require_members("from_dtensor", mesh, group)
    layout = layout_placed("from_dtensor", tuple(dtensor.shape), tuple(mesh.shape), dtensor.placements)
    offset = _offset(local, layout)
    if len(set(group.meeting.share("from_dtensor", offset.to_bytes(8, "little", signed=True)))) > 1 or offset < 0:
        wants = (
            "those of PartitionedTensor.to_dtensor or shmem.pool: symmetric, at one offset, with room for equal parts"
        )
        refuse(NotSymmetricError, "from_dtensor", "dtensor", "local tensors in other memory", wants)
    heap = heaps[local.device.type]
    memory = heap.tensor(heap.base + offset, (math.prod(layout.room) * local.itemsize,), torch.uint8)
    return PartitionedTensor(layout, group, local.dtype, memory, dtensor)


def _offset(local: torch.Tensor, layout: Layout) -> int:
    """The heap offset of a local tensor whose memory has the room of the layout, or -1."""
    heap, room = heaps.get(local.device.type), layout.room
    nbytes = math.prod(room) * local.itemsize
    if heap is None or not nbytes:
        return -1 if heap is None else 0
    steps = [math.prod(room[dim + 1 :]) for dim in range(len(room))]
    placed = all(
        extent < 2 or own == step for extent, own, step in zip(local.shape, local.stride(), steps, strict=True)
    )
    storage, first = local.untyped_storage(), int(local.storage_offset()) * local.itemsize
    offset, left = storage.data_ptr() + first - heap.base, storage.nbytes() - first
    return offset if placed and left >= nbytes and heap.allocator.covers(offset, nbytes) else -1
