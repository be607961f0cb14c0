"""Makes what kernels take: the device context of a team and a heap, and the partition of a partitioned tensor.

pyshmem.device says what their fields are.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
import triton.language as tl

from pyshmem.base import interpreter
from pyshmem.base.environment import read
from pyshmem.base.errors import ArgumentError, UnreachableError, refuse
from pyshmem.base.job import job
from pyshmem.device.arch.fields import encoded, encoded_distance, mesh_field
from pyshmem.device.arch.targets import DIRECT, FAR, TARGETS
from pyshmem.device.collectives.scratch import divide, head_bytes
from pyshmem.device.context import DeviceContext
from pyshmem.device.partitioned import MESH, NONE, MeshPartition, Partition
from pyshmem.diagnosis.event_ring import ring
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.memory import areas
from pyshmem.memory.arguments import require_init, symmetric_array
from pyshmem.memory.heap import Device, Heap, default, heaps
from pyshmem.transport.far.proxy import proxy
from pyshmem.transport.near_or_far import is_mapped

_made: dict[tuple[object, ...], DeviceContext] = {}
_said = False


def device_context(team: Team | None, device: Device | None, scratch: Any = None) -> DeviceContext:
    """See shmem.device_context."""
    require_init("device_context")
    group = TEAM_WORLD if team is None else member("device_context", team)
    heap = _heap(device)
    heap.enter()
    _say_where()
    own = areas.scratch(heap, group.area_index) if scratch is None else _given(heap, group, scratch)
    key = (heap.device, group.meeting.wires, own, ring.address)  # an area may have served another team before
    found = _made.get(key)
    if found is None or found.generation != encoded(job.generation):
        found = _made[key] = _make(group, heap, *own)
    elif is_compiled_far(found):
        proxy.ready(heap)
    return found


def is_compiled_far(ctx: DeviceContext) -> bool:
    """Return whether compiled kernels reach some members of the team by requests."""
    return bool(ctx.reach.value == FAR and ctx.where.value != TARGETS.index("interpreter"))


def describe_partition(tensor: Any, shard: torch.Tensor) -> Partition | MeshPartition:
    """The partition of a PartitionedTensor. Errors: device_context's."""
    layout = tensor.layout
    rows, cols = (*tensor.shape, 1)[:2]
    pitches = tuple(math.prod(layout.room[dim + 1 :]) for dim in range(len(tensor.shape)))
    ctx = device_context(tensor.team, heaps[shard.device.type].device)
    if layout.dim is not None and len(layout.mesh) == 1 and len(tensor.shape) <= 2:
        return Partition(ctx, shard, rows, cols, layout.cuts[layout.dim].block, pitches[0], tl.constexpr(layout.dim))
    own = zip(layout.dims, layout.place_of(tensor.team.me), layout.steps, strict=True)
    axes = [layout.dims.index(dim) if dim in layout.dims else None for dim in range(len(tensor.shape))]
    return MeshPartition(
        ctx,
        shard,
        rows,
        cols,
        pitches[0],
        dim=MESH,
        only=NONE if layout.dim is None else tl.constexpr(layout.dim),
        copy=encoded(sum(place * step for dim, place, step in own if dim is None)),
        shape=tuple(map(mesh_field, tensor.shape)),
        blocks=tuple(mesh_field(cut.block) for cut in layout.cuts),
        members=tuple(mesh_field(cut.n_pes) for cut in layout.cuts),
        steps=tuple(mesh_field(1 if axis is None else layout.steps[axis]) for axis in axes),
        pitches=tuple(map(mesh_field, pitches)),
    )


def _given(heap: Heap, group: Team, scratch: Any) -> tuple[int, int]:
    """(address, bytes) of memory that the program gives for scratch. Errors: ArgumentError, NotSymmetricError."""
    array = symmetric_array("device_context", "scratch", scratch)
    if array.heap is not heap:
        refuse(ArgumentError, "device_context", "scratch", f"memory on {array.heap.device}", f"some on {heap.device}")
    start = -(-array.address // 64) * 64
    nbytes, least = array.address + array.nelems * array.itemsize - start, head_bytes(group.size)
    if nbytes < least:
        got = f"{array.nelems * array.itemsize} bytes, {max(nbytes, 0)} of them from a multiple of 64 on"
        refuse(ArgumentError, "device_context", "scratch", got, f"{least} or more, for a team of {group.size} PEs")
    return start, nbytes


def _heap(device: Device | None) -> Heap:
    """The heap that kernels can use: interpreted ones the CPU's, compiled ones a GPU's. Errors: ArgumentError."""
    kind = "cpu" if interpreter.active() else "cuda"
    if device is None:
        device = default().device
    if device not in heaps or device != kind:
        how = "interpreted" if kind == "cpu" else "compiled"
        refuse(ArgumentError, "device_context", "device", repr(device), f"{kind!r}: kernels are {how} here")
    return heaps[device]


def _make(group: Team, heap: Heap, scratch: int, nbytes: int) -> DeviceContext:
    step, reach = _step_and_reach(group, heap)
    areas.wires[areas.area(group.area_index, heap)] = group.meeting.wires
    if group.size > areas.MOST_PES:
        refuse(ArgumentError, "device_context", "team", repr(group), f"one of at most {areas.MOST_PES} PEs")
    if heap.arch not in TARGETS:
        wants = "one of " + ", ".join(TARGETS[1:])
        refuse(ArgumentError, "device_context", "device", f"a GPU of kind {heap.arch}", wants)
    return DeviceContext(
        me=encoded(group.me),
        n_pes=encoded(group.size),
        stride=encoded_distance(step or 0),
        sync_area=areas.area(group.area_index, heap),
        generation=encoded(job.generation),
        base=heap.base,
        table=heap.table,
        start=encoded(group.start),
        step=encoded(group.stride),
        record=heap.record,
        limit=int(job.timeout * 1e9),
        **divide(scratch, nbytes, group.size),
        ring=proxy.ready(heap) if reach == FAR and heap.arch != "interpreter" else tl.constexpr(0),
        trace=ring.address or tl.constexpr(0),
        events=tl.constexpr(ring.room),
        where=tl.constexpr(TARGETS.index(heap.arch)),
        by_table=tl.constexpr(step is None),
        reach=tl.constexpr(reach),
        members=tl.constexpr(1 << (group.size - 1).bit_length()),
    )


def _step_and_reach(group: Team, heap: Heap) -> tuple[int | None, int]:
    """Return the bytes from one member's memory to the next one's, None if the distances differ, and the team's reach.

    Errors: UnreachableError where kernels have no way to a member.
    """
    pes = group._world_pes()
    unmapped = [i for i, pe in enumerate(pes) if not is_mapped(heap, pe)]
    lost = [i for i in unmapped if not heap.far or pes[i] not in heap.far_deltas]
    if lost:
        got = f"PE {lost[0]} of {group!r}"
        refuse(UnreachableError, "device_context", "team", got, "PEs whose heaps are mapped here")
    if unmapped or not heap.stride:
        return None, FAR if unmapped else DIRECT
    away = [heap.deltas[pe] for pe in pes]
    steps = {after - before for before, after in pairwise(away)} or {0}
    return steps.pop() if len(steps) == 1 else None, DIRECT


def _say_where() -> None:
    global _said
    if interpreter.chosen_here and not _said and job.my_pe == 0 and not read("PYSHMEM_QUIET"):
        print(
            "pyshmem: no GPU here, so kernels run in Triton's interpreter on the CPU (PYSHMEM_QUIET=1 hides this line)",
            flush=True,
        )
    _said = True
