"""Indices and slices of a partitioned tensor: whose elements they are, and where in which part."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pyshmem.base.errors import ArgumentError, OutOfRangeError, refuse
from pyshmem.host.partitioned.layout import Cut, Layout
from pyshmem.host.partitioned.moves import Indices, spaced
from pyshmem.memory.arguments import integer_of, is_int

_WANTS = "ints, slices with steps of 1 or more, and at most one ..."


class Piece(NamedTuple):
    """Elements of one PE: their places in its part, and in the result."""

    pe: int
    own: tuple[Indices, ...]
    there: tuple[Indices, ...]


class Selection:
    """What an index selects. shape: of all dimensions; result: without those of ints."""

    def __init__(self, index: Any, shape: tuple[int, ...]) -> None:
        each = _complete(index, len(shape))
        self.ranges = [_range(one, extent, dim) for dim, (one, extent) in enumerate(zip(each, shape, strict=True))]
        self.shape = tuple(map(len, self.ranges))
        self.result = tuple(
            len(numbers) for one, numbers in zip(each, self.ranges, strict=True) if isinstance(one, slice)
        )

    def pieces(self, layout: Layout, me: int, copies: bool) -> Iterator[Piece]:
        """Yield the pieces of all owners; of copies of a part that near ``me``, or with ``copies`` each."""
        found = [_owned(cut, numbers) for cut, numbers in zip(layout.cuts, self.ranges, strict=True)]
        for parts in itertools.product(*found):
            owners = [owner for owner, _, _ in parts]
            own, there = tuple(each[1] for each in parts), tuple(each[2] for each in parts)
            mine = layout.place_of(me)
            axes = [
                range(extent) if dim is None and copies else (place if dim is None else owners[dim],)
                for dim, extent, place in zip(layout.dims, layout.mesh, mine, strict=True)
            ]
            for place in itertools.product(*axes):
                yield Piece(layout.pe_at(place), own, there)


def _complete(index: Any, dimensions: int) -> list[Any]:
    """An int or a slice for each dimension."""
    given = list(index) if isinstance(index, tuple) else [index]
    left = dimensions - len([each for each in given if each is not Ellipsis])
    if left < 0 or sum(each is Ellipsis for each in given) > 1:
        refuse(ArgumentError, "slice", "index", repr(index), f"{_WANTS}, for {dimensions} dimensions")
    at = next((i for i, each in enumerate(given) if each is Ellipsis), len(given))
    return [*given[:at], *[slice(None)] * left, *given[at + 1 :]]


def _range(one: Any, extent: int, dim: int) -> range:
    """The indices of one dimension. Errors: ArgumentError, OutOfRangeError."""
    if isinstance(one, slice) and (one.step is None or (is_int(one.step) and one.step > 0)):
        return range(extent)[one]
    number = integer_of(one)
    if not is_int(number):
        refuse(ArgumentError, "slice", "index", repr(one), _WANTS)
    if not -extent <= number < extent:
        refuse(OutOfRangeError, "slice", "index", repr(one), f"an index of dimension {dim}, from 0 to {extent - 1}")
    return range(int(number) % extent, int(number) % extent + 1)


def _owned(cut: Cut, numbers: range) -> list[tuple[int, Indices, Indices]]:
    """(owner, where in its part, where in the result) of indices of one dimension, for each owner of some."""
    indices = np.arange(numbers.start, numbers.stop, numbers.step)
    turns, inside = np.divmod(indices, cut.block)
    local = turns // cut.n_pes * cut.block + inside
    found = []
    for owner in np.unique(turns % cut.n_pes).tolist():
        there = np.flatnonzero(turns % cut.n_pes == owner)
        found.append((owner, spaced(local[there]), spaced(there)))
    return found
