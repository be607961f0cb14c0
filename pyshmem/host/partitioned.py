"""Tensors distributed along one dimension over the PEs of a team. Kernels access their elements by global index."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.host.allocation import allocate, finish, free
from pyshmem.host.arrays import shape_of
from pyshmem.host.rma import get, put
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.runtime.arguments import as_dtype, count_of, describe, exact_int, integer_of, name_of, require_init
from pyshmem.runtime.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.runtime.heap import Device
from pyshmem.transport.routes import complete

_RANGES = 4  # shown per PE in the text of a layout


class Layout(NamedTuple):
    """The distribution of ``extent`` indices over ``n_pes`` PEs: blocks of ``block`` indices, cyclic, beginning with PE 0.

    The indices of a PE are numbered from 0 in their order: index i is number local_index(i) on PE owner(i).
    """

    extent: int
    block: int
    n_pes: int

    @property
    def rounds(self) -> int:
        """The number of blocks on PE 0, the maximum over all PEs."""
        return -(-self.extent // (self.block * self.n_pes))

    def owner(self, index: int) -> int:
        """Return the PE that owns ``index``. Errors: OutOfRangeError."""
        return self._index("owner", index) // self.block % self.n_pes

    def local_index(self, index: int) -> int:
        """Return the number of ``index`` among the indices of its owner. Errors: OutOfRangeError."""
        turn, place = divmod(self._index("local_index", index), self.block)
        return turn // self.n_pes * self.block + place

    def global_index(self, number: int, pe: int) -> int:
        """Return the index that has ``number`` among the indices of ``pe``. Errors: OutOfRangeError."""
        most = self.n_local(pe)
        if not 0 <= number < most:
            refuse(OutOfRangeError, "global_index", "number", repr(number), f"one of the {most} of PE {pe}, from 0")
        turn, place = divmod(number, self.block)
        return (turn * self.n_pes + pe) * self.block + place

    def n_local(self, pe: int) -> int:
        """Return the number of indices of ``pe``. Errors: OutOfRangeError."""
        if not 0 <= pe < self.n_pes:
            refuse(OutOfRangeError, "n_local", "pe", repr(pe), f"a PE from 0 to {self.n_pes - 1} of the tensor's team")
        whole, rest = divmod(self.extent, self.block * self.n_pes)
        return whole * self.block + min(max(rest - pe * self.block, 0), self.block)

    def __str__(self) -> str:
        """The indices of each PE, one line per PE."""
        lines = [f"{self.extent} in blocks of {self.block} over {self.n_pes} PEs"]
        return "\n".join(lines + [f"PE {pe}: {self._ranges(pe)}" for pe in range(self.n_pes)])

    def _ranges(self, pe: int) -> str:
        step = self.block * self.n_pes
        firsts = range(pe * self.block, self.extent, step)
        ranges = [f"{first} to {min(first + self.block, self.extent) - 1}" for first in firsts[:_RANGES]]
        return ", ".join(ranges + ["..."] * (len(firsts) > _RANGES)) or "none"

    def _index(self, routine: str, index: int) -> int:
        if not 0 <= index < self.extent:
            refuse(OutOfRangeError, routine, "index", repr(index), f"an index from 0 to {self.extent - 1}")
        return index


class PartitionedTensor:
    """A tensor that shmem.partitioned has distributed along ``dim`` over ``team``, as ``layout`` describes.

    It is false on PEs outside the team, which may only call ``free``.
    local: this PE's part, a view of its symmetric memory; the other parts have the same heap offset on their PEs.
    partition: the tensor as one argument for kernels: load_at, store_at, load_tile, store_tile, ... of pyshmem.device take
        it.
    """

    def __init__(
        self, shape: tuple[int, ...], dim: int, layout: Layout, team: Team, dtype: torch.dtype, memory: torch.Tensor
    ) -> None:
        self.shape, self.dim, self.layout, self.team, self.dtype, self._memory = shape, dim, layout, team, dtype, memory
        most = _with_extent(shape, dim, layout.rounds * layout.block) if team else (0,)
        # the same shape on all members; rows that not every PE has are at its end
        self._shard = memory[: math.prod(most) * dtype.itemsize].view(dtype).view(most)
        self.local = self._shard.narrow(dim, 0, layout.n_local(team.me)) if team else self._shard

    def __bool__(self) -> bool:
        return bool(self.team)

    def __repr__(self) -> str:
        cut = f"{name_of(self.dtype)}, dimension {self.dim} in blocks of {self.layout.block} over {self.team!r}"
        return f"<PartitionedTensor of shape {self.shape}, {cut}>"

    @cached_property
    def partition(self) -> Any:
        """The argument that kernels take. It contains the team's device context.

        Errors: ArgumentError on PEs outside the team, and if kernels cannot use the tensor's heap.
        """
        from pyshmem.host.device_context import describe_partition  # imports triton, which host programs do not need

        member("partition", self.team)
        return describe_partition(self, self._shard)

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
        blocks = self._cut(self._whole(source)) if group.me == root else ()
        self._meet("scatter")
        for pe, block in enumerate(blocks):
            put(self._shard, block.contiguous().view(self._shard.shape), group._world_pe("scatter", pe))
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
            parts = torch.empty((group.size, *self._shard.shape), dtype=self.dtype, device=self._shard.device)
            for pe, part in enumerate(parts):
                get(part, self._shard, group._world_pe("gather", pe))
            whole = self._join(parts)
        self._meet("gather")
        return whole

    def free(self) -> None:
        """Free the memory. Collective over TEAM_WORLD. Errors: NotSymmetricError if it is already freed."""
        free(self._memory)

    def _meet(self, routine: str) -> None:
        complete()
        self.team.meeting.sync(routine)

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

    def _cut(self, whole: torch.Tensor) -> torch.Tensor:
        """The parts of all PEs, with the PE as the first dimension; elements beyond the tensor's end are undefined."""
        layout, blocks = self.layout, self._blocks()
        filled = whole.new_empty(_with_extent(self.shape, self.dim, layout.rounds * layout.n_pes * layout.block))
        filled.narrow(self.dim, 0, layout.extent).copy_(whole)
        return filled.view(*blocks[: self.dim + 1], layout.n_pes, *blocks[self.dim + 1 :]).movedim(self.dim + 1, 0)

    def _join(self, parts: torch.Tensor) -> torch.Tensor:
        """The inverse of _cut, for parts in the shape of the shards."""
        blocks = parts.view(len(parts), *self._blocks()).movedim(0, self.dim + 1)
        return blocks.flatten(self.dim, self.dim + 2).narrow(self.dim, 0, self.layout.extent).contiguous()

    def _blocks(self) -> tuple[int, ...]:
        """The shape of a shard, with a separate dimension for its blocks."""
        return (*self.shape[: self.dim], self.layout.rounds, self.layout.block, *self.shape[self.dim + 1 :])


def partitioned(
    shape: Any,
    *,
    dtype: Any = None,
    dim: int = 0,
    block: int | None = None,
    team: Team | None = None,
    device: Device | torch.device | None = None,
) -> PartitionedTensor:
    """Return a tensor of zeros that is distributed along ``dim`` over the PEs of ``team``, in blocks of ``block`` indices.

    shape: one or two extents.
    dtype, device: of torch or NumPy, None is torch's default dtype; the heap "cuda" or "cpu", None is the default heap.
    dim: 0 distributes rows, 1 or -1 columns.
    block: None means one block per PE, of ceil(extent / n_pes) indices; the last PEs may have fewer, or none.
    team: None is TEAM_WORLD. PEs outside their team pass the false team of the split; teams may differ, as rows of split_2d.
    Order: collective over TEAM_WORLD; a barrier on return.
    Errors: ArgumentError, OutOfRangeError, DtypeError, HeapExhaustedError, NotInitializedError.
    """
    require_init("partitioned")
    group = TEAM_WORLD if team is None else team
    if not isinstance(group, Team):
        member("partitioned", group)
    extents = shape_of("partitioned", (shape,))
    axis = _axis(extents, dim)
    kind = torch.get_default_dtype() if dtype is None else as_dtype("partitioned", dtype)
    pes = max(group.size, 1)
    layout = Layout(extents[axis], _block(block, extents[axis], pes), pes)
    shard = _with_extent(extents, axis, layout.rounds * layout.block)
    nbytes = math.prod(shard) * kind.itemsize if group else 0
    return PartitionedTensor(extents, axis, layout, group, kind, _room(nbytes, device))


def _with_extent(shape: tuple[int, ...], dim: int, extent: int) -> tuple[int, ...]:
    return (*shape[:dim], extent, *shape[dim + 1 :])


def _axis(shape: tuple[int, ...], dim: int) -> int:
    if len(shape) not in (1, 2):
        refuse(ArgumentError, "partitioned", "shape", repr(shape), "one or two extents; view others as two")
    dim = integer_of(dim)
    if not isinstance(dim, (int, np.integer)) or not -len(shape) <= dim < len(shape):
        refuse(OutOfRangeError, "partitioned", "dim", repr(dim), f"a dimension from 0 to {len(shape) - 1}")
    return int(dim) % len(shape)


def _block(block: int | None, extent: int, n_pes: int) -> int:
    """The block size, from 1 to the extent; memory is allocated in whole blocks."""
    if block is None:
        return max(-(-extent // n_pes), 1)
    if not count_of("partitioned", "block", block):
        refuse(OutOfRangeError, "partitioned", "block", "0", "1 or more")
    return max(min(int(block), extent), 1)


def _room(nbytes: int, device: Device | torch.device | None) -> torch.Tensor:
    """Zeroed symmetric memory of the largest size that any PE needs; members of other teams may need less."""
    needs = TEAM_WORLD.meeting.share("partitioned", nbytes.to_bytes(16, "little"))
    most = max(int.from_bytes(need, "little") for need in needs)
    return finish("partitioned", allocate("partitioned", (most,), torch.uint8, device).zero_())
