"""Tensors distributed over the PEs of a team. Kernels access their elements by global index."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, DtypeError, refuse
from pyshmem.diagnosis.event_ring import ring
from pyshmem.host.allocation import allocate, finish, free, ptr
from pyshmem.host.arrays import shape_of
from pyshmem.host.partitioned import files
from pyshmem.host.partitioned.copies import by_kernel, by_runs
from pyshmem.host.partitioned.layout import Layout
from pyshmem.host.partitioned.moves import every, give, moves_from, moves_to, put_runs, take
from pyshmem.host.partitioned.placements import as_dtensor, described, is_device_mesh, require_members
from pyshmem.host.partitioned.slices import Selection
from pyshmem.host.rma import get, put
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.memory.arguments import an, as_dtype, describe, exact_int, name_of, require_init, symmetric_array
from pyshmem.memory.heap import Device, heaps
from pyshmem.transport.near_or_far import complete


class PartitionedTensor:
    """A tensor that shmem.partitioned has distributed over ``team``, as ``layout`` describes.

    It is false on PEs outside the team, which may only call ``free``.
    local: this PE's part, a view of its symmetric memory; the other parts have the same heap offset on their PEs.
    partition: the tensor as one argument for kernels: load_at, store_at, load_tile, store_tile, ... of pyshmem.device take
        it.
    """

    def __init__(self, layout: Layout, team: Team, dtype: torch.dtype, memory: torch.Tensor, owner: Any = None) -> None:
        """owner: keeps the memory, if this tensor does not."""
        self.shape, self.layout, self.team, self.dtype, self._memory = layout.shape, layout, team, dtype, memory
        self._owner = owner
        room = layout.room if team else (0,)
        # the same shape on all members; indices that not every PE has are at its end
        self._shard = memory[: math.prod(room) * dtype.itemsize].view(dtype).view(room)
        self.local = self._own(self._shard, team.me) if team else self._shard
        self._place = self._shard.data_ptr() - heaps[memory.device.type].base, self._shard.nbytes
        self._copies_to: WeakKeyDictionary[PartitionedTensor, list[Callable[[], object]]] = WeakKeyDictionary()

    def __bool__(self) -> bool:
        return bool(self.team)

    def __repr__(self) -> str:
        blocks = [
            f"dimension {dim} in blocks of {self.layout.cuts[dim].block}" for dim in self.layout.dims if dim is not None
        ]
        cut = f"{name_of(self.dtype)}, {', '.join(blocks) or 'whole'} over {self.team!r}"
        return f"<PartitionedTensor of shape {self.shape}, {cut}>"

    @cached_property
    def partition(self) -> Any:
        """The argument that kernels take. It contains the team's device context.

        Errors: ArgumentError on PEs outside the team, and if kernels cannot use the tensor's heap or layout.
        """
        from pyshmem.host.device_context import describe_partition  # imports triton, which host programs do not need

        member("partition", self.team)
        ring.holders.add(self)
        return describe_partition(self, self._shard)

    def rebind(self) -> None:
        """Describe the partition again when kernels next take it: the device context has changed."""
        self.__dict__.pop("partition", None)

    def __getitem__(self, index: Any) -> torch.Tensor:
        """Return a copy of these elements in private memory, each from its owner: ``a[3, 10:20]``.

        index: ints, slices with steps of 1 or more, and ``...``.
        Order: local, as get: what peers have written before a barrier or signal is read.
        Errors: ArgumentError, OutOfRangeError.
        """
        group, wanted = member("slice", self.team), Selection(index, self.shape)
        result = torch.empty(wanted.shape, dtype=self.dtype, device=self._shard.device)
        for pe, own, there in wanted.pieces(self.layout, group.me, copies=False):
            part = ptr(self._shard, group._world_pe("slice", pe))
            if part is None:  # on another node
                part = torch.empty_like(self._shard)
                get(part, self._shard, group._world_pe("slice", pe))
            give(result, there, take(part, own))
        return result.view(wanted.result)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write ``value``, a tensor or a number that is expanded to the shape, to the owners of these elements.

        index: as for reading. All copies of a part are written.
        Order: local, as put: complete after a barrier or quiet.
        Errors: ArgumentError, OutOfRangeError, those of torch for a value that does not fit.
        """
        group, wanted = member("slice", self.team), Selection(index, self.shape)
        values = torch.as_tensor(value, dtype=self.dtype, device=self._shard.device).expand(wanted.result)
        values = values.contiguous().view(wanted.shape)
        for pe, own, there in wanted.pieces(self.layout, group.me, copies=True):
            world_pe, some = group._world_pe("slice", pe), take(values, there)
            part = ptr(self._shard, world_pe)
            if part is not None:
                give(part, own, some)
            else:
                put_runs(self._shard, own, some, lambda to, of, pe=world_pe: put(to, of, pe))

    def scatter(self, source: Any = None, root: int = 0) -> None:
        """Distribute ``source`` of PE ``root`` of the team: each PE gets its part.

        source: an array of the tensor's shape and dtype, in any memory; only the root's is read.
        Order: collective over the team; nothing is written before all members have called, and all parts are complete on
            return.
        Errors: ArgumentError, DtypeError, OutOfRangeError.
        """
        group = member("scatter", self.team)
        root = exact_int("scatter", "root", root)
        group._world_pe("scatter", root, "root")
        whole = self._whole(source) if group.me == root else None
        self._meet("scatter")
        if whole is not None:
            for pe in range(group.size):
                part = whole.new_empty(self._shard.shape)
                self._own(part, pe).copy_(take(whole, every(self.layout, pe)))
                put(self._shard, part, group._world_pe("scatter", pe))
        self._meet("scatter")

    def gather(self, root: int | None = None) -> torch.Tensor | None:
        """Return the whole tensor in private memory on PE ``root`` of the team and None on the others; for None, on all PEs.

        Order: collective over the team; the result contains what all members have written before, and the tensor may be
            changed on return.
        Errors: ArgumentError, OutOfRangeError.
        """
        group = member("gather", self.team)
        whole = None
        if root is not None:
            root = exact_int("gather", "root", root)
            group._world_pe("gather", root, "root")
        self._meet("gather")
        if root is None or root == group.me:
            whole = torch.empty(self.shape, dtype=self.dtype, device=self._shard.device)
            part = torch.empty_like(self._shard)
            for pe in range(group.size):
                if self.layout.copy_near(pe, group.me) == pe:
                    get(part, self._shard, group._world_pe("gather", pe))
                    give(whole, every(self.layout, pe), self._own(part, pe))
        self._meet("gather")
        return whole

    def redistribute(self, layout: Layout | None = None, out: PartitionedTensor | None = None, **how: Any) -> Any:
        """Return the tensor in another layout: each PE sends what others need of its part, and nothing else moves.

        layout, out, how: one of them: another tensor's layout; a tensor of the same shape, dtype and team to write into; or
            mesh, dim and block, as partitioned takes them.
        Returns: ``out``, or a new tensor on the same heap.
        Order: collective over the team with ``out``, else over TEAM_WORLD. Nothing is written before all members have
            called; all parts are complete on return. Of copies, each PE reads its own, or that at its place on their axis.
        Errors: ArgumentError, OutOfRangeError, HeapExhaustedError.
        """
        if (layout is not None) + (out is not None) + bool(how) > 1:
            wants = "one of layout, out, or mesh, dim and block"
            refuse(ArgumentError, "redistribute", "layout", "several descriptions", wants)
        if out is None:
            new = self._described(layout, how)
            out = _made("redistribute", new, self.team, self.dtype, self._shard.device)
            if not self.team:
                return out
        group = member("redistribute", self.team)
        if out is self or not isinstance(out, PartitionedTensor) or not self._is_like(out):
            wants = f"another tensor of shape {self.shape}, {name_of(self.dtype)} elements and this team"
            got = repr(out) if isinstance(out, PartitionedTensor) else an(type(out).__name__)
            refuse(ArgumentError, "redistribute", "out", got, wants)
        complete()
        copies = self._copies(out)
        if all(map(ord, group.meeting.share("redistribute", bytes([copies is not None])))):
            for copy in copies or ():
                copy()
        else:
            self._send_packed(out)
        self._meet("redistribute")
        return out

    def to_dtensor(self, mesh: Any) -> Any:
        """Return the tensor as a DTensor of torch, whose local tensor is ``local``, without a copy.

        mesh: a DeviceMesh of the PEs of the team, in their order. Its axes are those of the layout's mesh, or parts of them:
            a dimension that is cut along several gets a Shard for each.
        Order: local. The memory lives until ``free``.
        Errors: ArgumentError for another mesh, and for a layout that DTensor has not: cyclic blocks, other uneven ones.
        """
        require_members("to_dtensor", mesh, member("to_dtensor", self.team))
        return as_dtensor(mesh, self.layout, self.local)

    def save(self, folder: Any) -> None:
        """Write the tensor into ``folder``: each PE its part, in a file that numpy.load reads, and one PE the layout.

        folder: a path that all PEs of the team see. It is made if it does not exist.
        Order: collective over the team; the files contain what all members have written before, and are complete on return.
        Errors: ArgumentError; OSError.
        """
        group = member("save", self.team)
        self._meet("save")
        files.write(Path(folder), self.layout, group.me, self.local)
        self._meet("save")

    def load(self, folder: Any) -> None:
        """Read what ``save`` has written, in any layout and on any number of PEs: each PE reads its part.

        folder: a path that all PEs of the team see.
        Order: collective over the team; all parts are complete on return.
        Errors: ArgumentError for another shape, DtypeError for other elements; OSError.
        """
        group = member("load", self.team)
        old = files.read_layout(Path(folder), self.shape, self.dtype)
        self._meet("load")
        for move in moves_to(old, self.layout, group.me):
            give(self._shard, move.target, take(files.read(Path(folder), move.pe, self.dtype), move.source))
        self._meet("load")

    def free(self) -> None:
        """Free the memory. Collective over TEAM_WORLD.

        Errors: NotSymmetricError if it is already freed; ArgumentError for a tensor of from_dtensor.
        """
        if self._owner is not None:
            refuse(ArgumentError, "free", "tensor", "one of from_dtensor", "the tensor or pool that has the memory")
        free(self._memory)

    def _described(self, layout: Layout | None, how: dict[str, Any]) -> Layout:
        """The layout that the arguments of redistribute describe."""
        unknown = how.keys() - {"mesh", "dim", "block"}
        if unknown:
            refuse(ArgumentError, "redistribute", "how", ", ".join(sorted(unknown)), "mesh, dim and block")
        if layout is None:
            dim, block, mesh = (how.get(name) for name in ("dim", "block", "mesh"))
            return described("redistribute", self.shape, dim, block, mesh, self.team)
        if layout.shape != self.shape or (self.team and layout.n_pes != self.team.size):
            got = f"one of {layout.shape} over {layout.n_pes} PEs"
            refuse(ArgumentError, "redistribute", "layout", got, f"one of {self.shape} over {self.team.size}")
        return layout

    def _is_like(self, other: PartitionedTensor) -> bool:
        return (self.shape, self.dtype, self.team) == (other.shape, other.dtype, other.team)

    def _copies(self, out: PartitionedTensor) -> list[Callable[[], object]] | None:
        """What moves elements to the parts of ``out``, kept for the next time; None if one of them is out of reach."""
        for argument, each in (("the tensor", self), ("out", out)):
            if not heaps[each._shard.device.type].allocator.covers(*each._place):
                symmetric_array("redistribute", argument, each._shard)  # refuses memory that has been freed
        if self not in out._copies_to:
            own, there = self._parts(), out._parts()
            if own is None or there is None:
                return None
            if out._shard.is_cuda:
                out._copies_to[self] = by_kernel(self.layout, out.layout, self.team.me, own, there)
            else:
                out._copies_to[self] = by_runs(moves_from(self.layout, out.layout, self.team.me), self._shard, there)
        return out._copies_to[self]

    def _parts(self) -> list[torch.Tensor] | None:
        """The parts of all PEs, None if one is out of reach."""
        found = [ptr(self._shard, pe) if self._shard.numel() else self._shard for pe in self.team._world_pes()]
        near = [each for each in found if each is not None]
        return near if len(near) == len(found) else None

    def _send_packed(self, out: PartitionedTensor) -> None:
        """Send the elements for each PE in messages, one after the other in its part of ``out``, which they fill."""
        group = self.team
        own: list[torch.Tensor] = []
        before: dict[int, int] = {}  # for each PE, where the next message begins in its part
        for move in moves_from(self.layout, out.layout, group.me):
            message = take(self._shard, move.source).contiguous().view(-1)
            if move.pe == group.me:
                own.append(message.clone())
                continue
            if move.pe not in before:
                others = moves_to(self.layout, out.layout, move.pe)
                before[move.pe] = sum(math.prod(each.shape) for each in others if each.pe < group.me)
            put(out._shard.view(-1)[before[move.pe] :], message, group._world_pe("redistribute", move.pe))
            before[move.pe] += message.numel()
        self._meet("redistribute")
        arrived, first = out._shard.view(-1).clone(), 0
        for move in moves_to(self.layout, out.layout, group.me):
            nelems = math.prod(move.shape)
            message = own.pop(0) if move.pe == group.me else arrived[first : first + nelems]
            give(out._shard, move.target, message.view(move.shape))
            first += nelems

    def _meet(self, routine: str) -> None:
        complete()
        self.team.meeting.sync(routine)

    def _own(self, shard: torch.Tensor, pe: int) -> torch.Tensor:
        """The elements that ``pe`` has of memory in the shape of the shards."""
        return shard[tuple(slice(extent) for extent in self.layout.shape_of(pe))]

    def _whole(self, source: Any) -> torch.Tensor:
        """``source`` as a tensor. Errors: ArgumentError, DtypeError."""
        operand = describe("scatter", "source", source, contiguous=False)
        if operand.shape != self.shape:
            refuse(ArgumentError, "scatter", "source", f"an array of shape {operand.shape}", f"one of {self.shape}")
        if operand.dtype != self.dtype:
            got = f"{name_of(operand.dtype)} elements"
            refuse(DtypeError, "scatter", "source", got, f"{name_of(self.dtype)}: no casting between arrays")
        if isinstance(source, np.ndarray):
            source = np.array(source, order="C")  # torch accepts no negative strides and warns about read-only arrays
        return torch.as_tensor(source).detach()


def partitioned(
    shape: Any,
    *,
    dtype: Any = None,
    mesh: Any = None,
    dim: Any = None,
    block: Any = None,
    team: Team | None = None,
    device: Device | torch.device | None = None,
) -> PartitionedTensor:
    """Return a tensor of zeros that is distributed over the PEs of ``team``, dimension by dimension, in blocks of indices.

    shape: one to four extents.  dtype, device: None is torch's default dtype; None is the default heap.
    mesh: a tuple of extents whose product is the team's size, or a DeviceMesh of torch of its PEs; None is one axis of all.
    dim: for each axis of the mesh the dimension that it cuts, or None for copies; None: axis i cuts dimension i. Torch's
        placements, as (Shard(0), Replicate()), say the same, and may cut a dimension along several axes in a row.
    block: one int, or one for each dimension. None means one block per PE of an axis, of ceil(extent / PEs) indices; the
        last PEs may have fewer, or none.
    team: None is TEAM_WORLD. PEs outside their team pass the false team of the split; teams may differ, as rows of split_2d.
    Order: collective over TEAM_WORLD; a barrier on return.
    Errors: ArgumentError, OutOfRangeError, DtypeError, HeapExhaustedError, NotInitializedError.
    """
    require_init("partitioned")
    group = TEAM_WORLD if team is None else team
    if not isinstance(group, Team):
        member("partitioned", group)
    layout = described("partitioned", shape_of("partitioned", (shape,)), dim, block, mesh, group)
    kind = torch.get_default_dtype() if dtype is None else as_dtype("partitioned", dtype)
    where = mesh.device_type if device is None and is_device_mesh(mesh) else device
    return _made("partitioned", layout, group, kind, where)


def _made(
    routine: str, layout: Layout, team: Team, dtype: torch.dtype, device: Device | torch.device | None
) -> PartitionedTensor:
    """A tensor in zeroed symmetric memory of the largest size that any PE needs; members of other teams may need less."""
    nbytes = math.prod(layout.room) * dtype.itemsize if team else 0
    needs = TEAM_WORLD.meeting.share(routine, nbytes.to_bytes(16, "little"))
    most = max(int.from_bytes(need, "little") for need in needs)
    memory = finish(routine, allocate(routine, (most,), torch.uint8, device).zero_())
    return PartitionedTensor(layout, team, dtype, memory)
