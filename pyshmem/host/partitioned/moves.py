"""The elements that two layouts of one tensor give to a pair of PEs, as places in the parts of both, and copies of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.host.partitioned.layout import Cut, Layout

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MOST_PIECES = 4  # of a dimension; more are one list of indices


class Runs(NamedTuple):
    """Indices of one dimension: ``number`` runs of ``length`` consecutive ones, the first at ``first``, each ``step`` on."""

    first: int
    step: int
    number: int
    length: int


Indices = slice | Runs | torch.Tensor  # of one dimension


class Move(NamedTuple):
    """Elements that PE ``pe`` of one layout and a PE of another have: their places in both parts, for each dimension.

    shape: that of take's result, the lengths of runs at the end.
    """

    pe: int
    shape: tuple[int, ...]
    source: tuple[Indices, ...]
    target: tuple[Indices, ...]


def moves_from(old: Layout, new: Layout, pe: int) -> Iterator[Move]:
    """Yield what PE ``pe`` of ``old`` gives to each PE of ``new``: to each reader of its copy, beginning with itself."""
    for further in range(new.n_pes):
        reader = (pe + further) % new.n_pes
        if old.copy_near(pe, reader) == pe:
            yield from _moves(old, pe, new, reader, reader)


def moves_to(old: Layout, new: Layout, pe: int) -> Iterator[Move]:
    """Yield what PE ``pe`` of ``new`` takes from each PE of ``old``, in the order of these PEs."""
    for giver in range(old.n_pes):
        if old.copy_near(giver, pe) == giver:
            yield from _moves(old, giver, new, pe, giver)


def _moves(old: Layout, giver: int, new: Layout, reader: int, named: int) -> Iterator[Move]:
    """The moves of a pair of PEs: one for each combination of the pieces of the dimensions."""
    cuts = zip(old.cuts, old.owners(giver), new.cuts, new.owners(reader), strict=True)
    for pieces in itertools.product(*(_pieces(*each) for each in cuts)):
        counts, source, target = zip(*pieces, strict=True)
        lengths = [each.length for each in source if isinstance(each, Runs)]
        yield Move(named, (*counts, *lengths), source, target)


@lru_cache(4096)
def _pieces(old: Cut, giver: int, new: Cut, reader: int) -> tuple[tuple[int, Indices, Indices], ...]:
    """(how many, where in the giver's part, where in the reader's) of the indices that both have in one dimension.

    How many counts runs for Runs, and indices otherwise. Runs of equal length at equal distances in both parts are one
    piece, which a copy of a view moves; lists need two copies.
    """
    indices = old.indices(giver)
    source = np.flatnonzero(indices // new.block % new.n_pes == reader)
    if not source.size:
        return ()
    turn, place = np.divmod(indices[source], new.block)
    target = turn // new.n_pes * new.block + place
    firsts = np.flatnonzero(np.diff(source, prepend=-2) + np.diff(target, prepend=-2) != 2)  # of runs in both parts
    runs = np.stack([source[firsts], target[firsts], np.diff(firsts, append=source.size)])
    pieces: list[tuple[int, Indices, Indices]] = []
    while runs.size:
        if len(pieces) == _MOST_PIECES:
            return ((len(source), torch.from_numpy(source), torch.from_numpy(target)),)
        from_first, to_first, length = map(int, runs[:, 0])
        changes = np.diff(runs, axis=1)  # of a piece: the same distances, and no change of the length
        alike = (changes == [*changes[:2, :1], [0]]).all(axis=0) if changes.size else np.ones(0, bool)
        count = 1 + (len(alike) if alike.all() else int(alike.argmin()))
        from_step, to_step = map(int, changes[:2, 0]) if changes.size else (1, 1)
        places = _runs(from_first, from_step, count, length), _runs(to_first, to_step, count, length)
        pieces.append((count if isinstance(places[0], Runs) else count * length, *places))
        runs = runs[:, count:]
    return tuple(pieces)


def _runs(first: int, step: int, count: int, length: int) -> slice | Runs:
    """A slice where there is one run, or each run is one index."""
    if count == 1:
        return slice(first, first + length)
    if length == 1:
        return slice(first, first + (count - 1) * step + 1, step)
    return Runs(first, step, count, length)


def spaced(numbers: np.ndarray[Any, Any]) -> Indices:
    """Return increasing numbers as a slice if they are evenly spaced."""
    if not numbers.size:
        return slice(0, 0)
    step = int(numbers[1] - numbers[0]) if numbers.size > 1 else 1
    if numbers[-1] - numbers[0] == step * (numbers.size - 1) and (np.diff(numbers) == step).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1, step)
    return torch.from_numpy(numbers)


def every(layout: Layout, pe: int) -> tuple[Indices, ...]:
    """Return the indices in the whole tensor of all elements of ``pe``."""
    cuts = zip(layout.cuts, layout.owners(pe), strict=True)
    return tuple(spaced(cut.indices(owner)) for cut, owner in cuts)


def bits(array: torch.Tensor) -> torch.Tensor:
    """View the elements in a type that torch can index on every device: it lacks float8 and unsigned ones at places."""
    return array.view(_BITS[array.itemsize]) if array.itemsize in _BITS else array


def take(array: torch.Tensor, places: tuple[Indices, ...]) -> torch.Tensor:
    """Return the elements at ``places``: a view unless some are lists. Lengths of runs are further dimensions at the end."""
    found = _view(bits(array), places)
    for dim, each in enumerate(places):
        if isinstance(each, torch.Tensor):
            found = found.index_select(dim, each.to(array.device))
    return found.view(array.dtype)


def give(array: torch.Tensor, places: tuple[Indices, ...], values: torch.Tensor) -> None:
    """Store ``values`` to the elements at ``places``."""
    room, source = _view(bits(array), places), bits(values)
    lists = {dim: each.to(array.device) for dim, each in enumerate(places) if isinstance(each, torch.Tensor)}
    if not lists:
        room.copy_(source)
    elif len(lists) == 1:
        [(dim, each)] = lists.items()
        room.index_copy_(dim, each, source.to(array.device))
    else:
        at = [lists.get(dim, torch.arange(extent, device=array.device)) for dim, extent in enumerate(source.shape)]
        room[torch.meshgrid(*at, indexing="ij")] = source.to(array.device)


def put_runs(
    array: torch.Tensor, places: tuple[Indices, ...], values: torch.Tensor, put: Callable[..., object]
) -> None:
    """Call put(to, of) for each run of ``values`` in a row, whose places are in ``array``, a symmetric one."""
    numbers = [torch.arange(extent)[_at(each)].tolist() for extent, each in zip(array.shape, places, strict=True)]
    *outer, last = numbers
    ends = [i + 1 for i in range(len(last)) if i + 1 == len(last) or last[i + 1] != last[i] + 1]
    flat = values.contiguous().view(-1, len(last))
    for row, place in enumerate(itertools.product(*outer)):
        for begin, end in zip([0, *ends], ends, strict=False):
            put(array[place][last[begin] : last[begin] + end - begin], flat[row, begin:end])


def _at(each: Indices) -> slice | torch.Tensor:
    assert not isinstance(each, Runs)
    return each


def _view(array: torch.Tensor, places: tuple[Indices, ...]) -> torch.Tensor:
    """A view of the elements in slices and runs, with all indices where there is a list."""
    for dim, each in enumerate(places):
        if isinstance(each, slice):
            array = array[(slice(None),) * dim + (each,)]
        elif isinstance(each, Runs):
            span = (each.number - 1) * each.step + each.length
            array = array.narrow(dim, each.first, span).unfold(dim, each.length, each.step)
    return array
