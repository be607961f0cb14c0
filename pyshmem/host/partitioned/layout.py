"""Who owns which elements of a partitioned tensor: a cut for each dimension, over the axis of a mesh of PEs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pyshmem.base.errors import ArgumentError, OutOfRangeError, refuse
from pyshmem.memory.arguments import count_of, integer_of, is_int

_RANGES = 4  # shown per PE in the text of a layout
MOST_DIMENSIONS = 4


class Cut(NamedTuple):
    """The distribution of ``extent`` indices over ``n_pes`` places: blocks of ``block`` indices, cyclic, from place 0 on.

    The indices of a place are numbered from 0 in their order: index i is number local_index(i) on place owner(i).
    """

    extent: int
    block: int
    n_pes: int

    @property
    def rounds(self) -> int:
        """The number of blocks on place 0, the maximum over all places."""
        return -(-self.extent // (self.block * self.n_pes))

    @property
    def most(self) -> int:
        """The room for the indices of a place, in whole blocks, the same for all places."""
        return self.rounds * self.block

    def owner(self, index: int) -> int:
        """Return the place that owns ``index``. Errors: OutOfRangeError."""
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

    def indices(self, pe: int) -> np.ndarray[Any, Any]:
        """Return all indices of ``pe``, in their order."""
        firsts = np.arange(pe * self.block, self.extent, self.block * self.n_pes)
        every = (firsts[:, None] + np.arange(self.block)).ravel()
        return every[: self.n_local(pe)]

    def ranges(self, pe: int) -> str:
        """Return the first ranges of the indices of ``pe``, in words."""
        firsts = range(pe * self.block, self.extent, self.block * self.n_pes)
        ranges = [f"{first} to {min(first + self.block, self.extent) - 1}" for first in firsts[:_RANGES]]
        return ", ".join(ranges + ["..."] * (len(firsts) > _RANGES)) or "none"

    def _index(self, routine: str, index: int) -> int:
        if not 0 <= index < self.extent:
            refuse(OutOfRangeError, routine, "index", repr(index), f"an index from 0 to {self.extent - 1}")
        return index


@dataclass(frozen=True)
class Layout:
    """The distribution of a tensor of ``shape`` over a mesh of PEs.

    mesh: the extents of the mesh. PEs are numbered by rows: the last axis varies fastest.
    dims: for each axis of the mesh the dimension that it cuts, or None if each PE of the axis has a copy.
    cuts: for each dimension its distribution along its axis: extent, block, n_pes; n_pes is 1 for a dimension without one.
    """

    shape: tuple[int, ...]
    mesh: tuple[int, ...]
    dims: tuple[int | None, ...]
    cuts: tuple[Cut, ...]

    @property
    def n_pes(self) -> int:
        """The number of PEs of the mesh."""
        return math.prod(self.mesh)

    @property
    def room(self) -> tuple[int, ...]:
        """The shape of the memory of each PE, in whole blocks."""
        return tuple(cut.most for cut in self.cuts)

    @property
    def dim(self) -> int | None:
        """The dimension that is distributed, or None if there are several or none."""
        cut = [dim for dim in self.dims if dim is not None]
        return cut[0] if len(cut) == 1 else None

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """For each axis of the mesh the distance in PEs to the next one along it."""
        return tuple(math.prod(self.mesh[axis + 1 :]) for axis in range(len(self.mesh)))

    def owner(self, index: int, dim: int | None = None) -> int:
        """Return where ``index`` of dimension ``dim`` is along the axis that cuts it. Errors: OutOfRangeError.

        dim: None is the dimension that is distributed; if its axis is the only one, the result is a PE.
        """
        return self._cut("owner", dim).owner(index)

    def local_index(self, index: int, dim: int | None = None) -> int:
        """Return the number of ``index`` among the indices of its owner. Errors: OutOfRangeError."""
        return self._cut("local_index", dim).local_index(index)

    def global_index(self, number: int, pe: int, dim: int | None = None) -> int:
        """Return the index that has ``number`` among those of place ``pe`` along the axis. Errors: OutOfRangeError."""
        return self._cut("global_index", dim).global_index(number, pe)

    def n_local(self, pe: int, dim: int | None = None) -> int:
        """Return how many indices place ``pe`` along the axis has. Errors: OutOfRangeError."""
        return self._cut("n_local", dim).n_local(pe)

    def place_of(self, pe: int) -> tuple[int, ...]:
        """Return the place of ``pe`` in the mesh, one number an axis."""
        return tuple(pe // step % extent for step, extent in zip(self.steps, self.mesh, strict=True))

    def pe_at(self, place: tuple[int, ...]) -> int:
        """Return the PE at a place of the mesh."""
        return sum(number * step for number, step in zip(place, self.steps, strict=True))

    def owners(self, pe: int) -> tuple[int, ...]:
        """Return where ``pe`` is along the axis that cuts each dimension: 0 for a dimension that none cuts."""
        place = self.place_of(pe)
        return tuple(place[self.dims.index(dim)] if dim in self.dims else 0 for dim in range(len(self.shape)))

    def shape_of(self, pe: int) -> tuple[int, ...]:
        """Return the shape of the part of ``pe``."""
        return tuple(cut.n_local(owner) for cut, owner in zip(self.cuts, self.owners(pe), strict=True))

    def copy_near(self, pe: int, reader: int) -> int:
        """Return the PE with the same part as ``pe`` that ``reader`` reads it from: its own copy if it has one."""
        places = zip(self.dims, self.place_of(pe), self.place_of(reader), strict=True)
        return self.pe_at(tuple(own if dim is None else there for dim, there, own in places))

    def __str__(self) -> str:
        """The indices of each PE, one line per PE."""
        mesh = "x".join(map(str, self.mesh))
        cuts = [f"{cut.extent} in blocks of {cut.block}" if cut.n_pes > 1 else str(cut.extent) for cut in self.cuts]
        lines = [f"{' by '.join(cuts)} over {mesh} PEs"]
        for pe in range(self.n_pes):
            ranges = [cut.ranges(owner) for cut, owner in zip(self.cuts, self.owners(pe), strict=True)]
            lines.append(f"PE {pe}: {' by '.join(ranges)}")
        return "\n".join(lines)

    def _cut(self, routine: str, dim: int | None) -> Cut:
        number = self.dim if dim is None else dim
        if number is None:
            got = "None, for several dimensions" if any(each is not None for each in self.dims) else "None, for none"
            refuse(ArgumentError, routine, "dim", got, f"a dimension from 0 to {len(self.shape) - 1}")
        return self.cuts[dimension_of(routine, number, len(self.shape))]


def layout_of(routine: str, shape: tuple[int, ...], dim: Any, block: Any, mesh: Any, n_pes: int) -> Layout:
    """Return the layout that the arguments of shmem.partitioned describe; n_pes is 0 for a PE that has no part.

    Errors: ArgumentError, OutOfRangeError.
    """
    if not 1 <= len(shape) <= MOST_DIMENSIONS:
        refuse(ArgumentError, routine, "shape", repr(shape), "one to four extents; view others as four")
    extents = (n_pes or 1,) if mesh is None else _mesh(routine, mesh, n_pes)
    dims = _dims(routine, dim, len(extents), len(shape))
    places = [extents[dims.index(each)] if each in dims else 1 for each in range(len(shape))]
    blocks = _blocks(routine, block, shape, places, [each in dims for each in range(len(shape))])
    return Layout(shape, extents, dims, tuple(map(Cut, shape, blocks, places)))


def _mesh(routine: str, mesh: Any, n_pes: int) -> tuple[int, ...]:
    extents = tuple(map(integer_of, mesh)) if isinstance(mesh, (tuple, list)) else (integer_of(mesh),)
    if not extents or not all(is_int(each) and each > 0 for each in extents):
        refuse(ArgumentError, routine, "mesh", repr(mesh), "a tuple of ints, each 1 or more")
    if n_pes and math.prod(extents) != n_pes:
        refuse(ArgumentError, routine, "mesh", repr(mesh), f"extents whose product is {n_pes}, the PEs of the team")
    return tuple(map(int, extents))


def _dims(routine: str, dim: Any, axes: int, dimensions: int) -> tuple[int | None, ...]:
    """The dimension that each axis of the mesh cuts. None: axis i cuts dimension i."""
    if dim is None:
        return tuple(axis if axis < dimensions else None for axis in range(axes))
    given = dim if isinstance(dim, (tuple, list)) else (dim,)
    if len(given) != axes:
        refuse(ArgumentError, routine, "dim", repr(dim), f"a dimension or None for each of the {axes} axes of the mesh")
    dims = tuple(None if each is None else dimension_of(routine, each, dimensions) for each in given)
    cut = [each for each in dims if each is not None]
    if len(set(cut)) < len(cut):
        refuse(ArgumentError, routine, "dim", repr(dim), "each dimension cut by at most one axis of the mesh")
    return dims


def dimension_of(routine: str, dim: Any, dimensions: int) -> int:
    number = integer_of(dim)
    if not isinstance(number, (int, np.integer)) or not -dimensions <= number < dimensions:
        refuse(OutOfRangeError, routine, "dim", repr(dim), f"a dimension from 0 to {dimensions - 1}")
    return int(number) % dimensions


def _blocks(routine: str, block: Any, shape: tuple[int, ...], places: list[int], cut: list[bool]) -> list[int]:
    """The block of each dimension, from 1 to the extent; memory is allocated in whole blocks."""
    given = tuple(block) if isinstance(block, (tuple, list)) else (block,) * len(shape)
    if len(given) != len(shape):
        refuse(ArgumentError, routine, "block", repr(block), f"an int, or {len(shape)} of them, one a dimension")
    return [
        _block(routine, each if is_cut else None, extent, n)
        for each, extent, n, is_cut in zip(given, shape, places, cut, strict=True)
    ]


def _block(routine: str, block: Any, extent: int, n_pes: int) -> int:
    if block is None:
        return max(-(-extent // n_pes), 1)
    if not count_of(routine, "block", block):
        refuse(OutOfRangeError, routine, "block", "0", "1 or more")
    return max(min(int(block), extent), 1)
