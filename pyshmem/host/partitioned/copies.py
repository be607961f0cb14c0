"""How redistribute moves elements between PEs of one node, prepared once: by C in CPU memory, by a kernel in GPU memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from pyshmem.host.partitioned.layout import Cut, Layout
from pyshmem.host.partitioned.moves import Indices, Move, Runs
from pyshmem.memory.heap import heaps
from pyshmem.native._native import copy_blocks

# of the fields of a dimension those that count indices; 4 and 8 are the room, and pitches later
_INDICES = (0, 1, 4, 5, 8)
# bytes of a last dimension, from which it stays one: rows of a tile share what is computed of their columns
_ROW = 8192
_PAST_CACHES = 8 << 20

Table = np.ndarray[Any, Any]  # a row for each run of an axis: the fields of run_t in base/blocks.h


def by_kernel(
    old: Layout, new: Layout, me: int, own: Sequence[torch.Tensor], peers: Sequence[torch.Tensor]
) -> list[Callable[[], object]]:
    """Return what moves this PE's elements in GPU memory. own, peers: the parts of all PEs of both layouts.

    It stores to the others if that is the side with longer runs in a row; or it loads, as always where there are copies.
    """
    from pyshmem.kernels import redistribution  # imports triton, which host programs do not need

    push = None not in (*old.dims, *new.dims) and _block(old.cuts[-1]) >= _block(new.cuts[-1])
    near, far, parts = (old, new, peers) if push else (new, old, own)
    part = (own if push else peers)[me]
    if not math.prod(near.shape_of(me)):
        return []
    addresses = [each.data_ptr() for each in parts]
    dims, unit = _dims(near, far, me, part.itemsize)
    plan = redistribution.bound(part, dims, addresses[far.copy_near(0, me) :], me / near.n_pes, unit, push)
    return [lambda: plan.launch("redistribute", heaps["cuda"].near.use_stream())]


def _dims(near: Layout, far: Layout, me: int, itemsize: int) -> tuple[list[list[int]], int]:
    """The dimensions as redistribution.bound takes them, and the bytes that lie together in both layouts."""
    dims: list[list[int]] = []
    whole = False  # the first of dims, on all PEs of both layouts
    cuts = zip(near.cuts, near.owners(me), far.cuts, _steps(far), strict=True)
    for here, place, there, step in reversed(list(cuts)):
        own = [here.n_local(place), _block(here), here.n_pes, place, here.most]
        dim = [*own, _block(there), there.n_pes, step, there.most]
        if whole and (len(dims) > 1 or dims[0][0] * itemsize < _ROW):  # one dimension with the one behind it
            dims[0] = [n * dims[0][0] if i in _INDICES else n for i, n in enumerate(dim)]
        else:
            dims.insert(0, dim)
        whole = here.n_pes == there.n_pes == 1 and here.most == there.most == here.extent
    *others, last = dims
    unit = math.gcd(16, last[1] * itemsize, last[5] * itemsize)
    last = [-(-n * itemsize // unit) if i in _INDICES else n for i, n in enumerate(last)]
    pitches = [1, 1]
    for each in (last, *reversed(others)):
        each[4], pitches[0] = pitches[0], pitches[0] * each[4]
        each[8], pitches[1] = pitches[1], pitches[1] * each[8]
    return [*(others or [[1, 1, 1, 0, 0, 1, 1, 0, 0]]), last], unit


def _steps(layout: Layout) -> list[int]:
    """Return for each dimension the distance in PEs to the next one along its axis."""
    return [layout.steps[layout.dims.index(dim)] if dim in layout.dims else 0 for dim in range(len(layout.shape))]


def _block(cut: Cut) -> int:
    """The indices in a row that a place has: one block of all, if there is one place."""
    return cut.most if cut.n_pes == 1 else cut.block


def by_runs(moves: Iterable[Move], own: torch.Tensor, peers: Sequence[torch.Tensor]) -> list[Callable[[], object]]:
    """Return what stores the elements of ``moves``, from this PE's part ``own``, to ``peers``, the parts of all PEs.

    Moves that differ in their last axis alone are one copy, which reads the source once.
    """
    base = own.data_ptr()
    together: dict[bytes, list[Table]] = {}
    axes = {}
    for move in moves:
        *outer, last = _axes(move, peers[move.pe], own)
        last[:, 0] += peers[move.pe].data_ptr() - base
        key = b"".join(outer)
        together.setdefault(key, []).append(last)
        axes[key] = len(outer) + 1
    past = own.nbytes >= _PAST_CACHES
    return [
        partial(copy_blocks, base, base, key + _axis(0, 0, np.concatenate(lasts)), axes[key], past)
        for key, lasts in together.items()
    ]


def _axes(move: Move, to: torch.Tensor, source: torch.Tensor) -> list[Any]:
    """The outer axes of a move as parts of a plan, outermost first, and the runs of the last one."""
    *places, (target, own) = zip(move.target, move.source, strict=True)
    last = _scaled(_table(target, own), to.itemsize, to.itemsize) * [1, 1, 1, 1, 1, to.itemsize]
    while places and len(last) == 1 and last[0, 4] == 1:
        dim, nbytes = len(places) - 1, last[0, 5]
        pitches = to.stride(dim) * to.itemsize, source.stride(dim) * to.itemsize
        if pitches != (nbytes, nbytes):
            break
        last = _scaled(_table(*places.pop()), *pitches) * [1, 1, 1, 1, 1, nbytes]
    outer = []
    for dim, each in enumerate(places):
        pitches = to.stride(dim) * to.itemsize, source.stride(dim) * to.itemsize
        outer.append(_axis(*pitches, _scaled(_table(*each), *pitches)))
    return [*outer, last]


def _table(target: Indices, source: Indices) -> Table:
    """The runs of indices at which one dimension's elements are, in both parts."""
    if isinstance(target, Runs) and isinstance(source, Runs):
        rows = [[target.first, source.first, target.step, source.step, target.number, target.length]]
        return np.array(rows, np.int64)
    if isinstance(target, slice) and isinstance(source, slice):
        steps, number = (target.step or 1, source.step or 1), len(range(target.start, target.stop, target.step or 1))
        counts = (1, number) if steps == (1, 1) else (number, 1)
        return np.array([[target.start, source.start, *steps, *counts]], np.int64)
    to, own = (each.numpy() for each in (target, source))  # type: ignore[union-attr]
    firsts = np.flatnonzero(np.diff(own, prepend=-2) + np.diff(to, prepend=-2) != 2)
    table = np.ones((len(firsts), 6), np.int64)
    table[:, 0], table[:, 1], table[:, 5] = to[firsts], own[firsts], np.diff(firsts, append=len(to))
    return table


def _scaled(table: Table, to: int, source: int) -> Table:
    """Places in bytes."""
    return table * [to, source, to, source, 1, 1]


def _axis(to: int, source: int, table: Table) -> bytes:
    """One axis of a plan: an axis_t of base/blocks.h and the runs."""
    return np.array([to, source, len(table)], np.int64).tobytes() + table.astype(np.int64).tobytes()
