"""The elements that two layouts of one tensor give to a pair of PEs, as places in the parts of both, and copies of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.host.partitioned.layout import Cut, Layout

Indices = slice | torch.Tensor  # of one dimension: a slice if they are evenly spaced
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Move(NamedTuple):
    """Elements that PE ``pe`` of one layout and a PE of another have: their places in both parts, for each dimension."""

    pe: int
    shape: tuple[int, ...]
    source: tuple[Indices, ...]
    target: tuple[Indices, ...]


def moves_from(old: Layout, new: Layout, pe: int) -> Iterator[Move]:
    """Yield what PE ``pe`` of ``old`` gives to each PE of ``new``: to each reader of its copy, beginning with itself."""
    for further in range(new.n_pes):
        reader = (pe + further) % new.n_pes
        if old.copy_near(pe, reader) == pe:
            yield from _move(old, pe, new, reader, reader)


def moves_to(old: Layout, new: Layout, pe: int) -> Iterator[Move]:
    """Yield what PE ``pe`` of ``new`` takes from each PE of ``old``, in the order of these PEs."""
    for giver in range(old.n_pes):
        if old.copy_near(giver, pe) == giver:
            yield from _move(old, giver, new, pe, giver)


def _move(old: Layout, giver: int, new: Layout, reader: int, named: int) -> Iterator[Move]:
    cuts = zip(old.cuts, old.owners(giver), new.cuts, new.owners(reader), strict=True)
    shape, source, target = zip(*(_common(*each) for each in cuts), strict=True)
    if all(shape):
        yield Move(named, shape, source, target)


@lru_cache(4096)
def _common(old: Cut, giver: int, new: Cut, reader: int) -> tuple[int, Indices, Indices]:
    """(how many, where in the giver's part, where in the reader's) of the indices of one dimension that both have."""
    indices = old.indices(giver)
    numbers = np.flatnonzero(indices // new.block % new.n_pes == reader)
    turn, place = np.divmod(indices[numbers], new.block)
    return len(numbers), _spaced(numbers), _spaced(turn // new.n_pes * new.block + place)


def _spaced(numbers: np.ndarray[Any, Any]) -> Indices:
    """Increasing numbers as a slice if they are evenly spaced."""
    if not numbers.size:
        return slice(0, 0)
    step = int(numbers[1] - numbers[0]) if numbers.size > 1 else 1
    if numbers[-1] - numbers[0] == step * (numbers.size - 1) and (np.diff(numbers) == step).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1, step)
    return torch.from_numpy(numbers)


def every(layout: Layout, pe: int) -> tuple[Indices, ...]:
    """Return the indices in the whole tensor of all elements of ``pe``."""
    cuts = zip(layout.cuts, layout.owners(pe), strict=True)
    return tuple(_spaced(cut.indices(owner)) for cut, owner in cuts)


def bits(array: torch.Tensor) -> torch.Tensor:
    """View the elements in a type that torch can index on every device: it lacks float8 and unsigned ones at places."""
    return array.view(_BITS[array.itemsize]) if array.itemsize in _BITS else array


def take(array: torch.Tensor, places: tuple[Indices, ...]) -> torch.Tensor:
    """Return the elements at ``places``: a view if all of them are slices."""
    found = bits(array)[_slices(places)]
    for dim, each in enumerate(places):
        if isinstance(each, torch.Tensor):
            found = found.index_select(dim, each.to(array.device))
    return found.view(array.dtype)


def give(array: torch.Tensor, places: tuple[Indices, ...], values: torch.Tensor) -> None:
    """Store ``values`` to the elements at ``places``."""
    room, source = bits(array)[_slices(places)], bits(values)
    lists = {dim: each.to(array.device) for dim, each in enumerate(places) if isinstance(each, torch.Tensor)}
    if not lists:
        room.copy_(source)
    elif len(lists) == 1:
        [(dim, each)] = lists.items()
        room.index_copy_(dim, each, source.to(array.device))
    else:
        at = [lists.get(dim, torch.arange(extent, device=array.device)) for dim, extent in enumerate(source.shape)]
        room[torch.meshgrid(*at, indexing="ij")] = source.to(array.device)


def _slices(places: tuple[Indices, ...]) -> tuple[slice, ...]:
    return tuple(each if isinstance(each, slice) else slice(None) for each in places)
