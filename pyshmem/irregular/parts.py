"""Tiles and parts of long ones: a matrix as schedules divide it over programs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pyshmem.irregular.matrix import CSR

_ALIGNED = 8  # atoms: parts of a split tile are multiples of it


class Items(NamedTuple):
    """Tiles, or parts of split ones, in the order of programs: their atoms, and the tile, or -1 - the number of the part."""

    begins: Any
    ends: Any
    tiles: Any


class Parted:
    """A matrix's tiles, those of more than ``size`` atoms split. Found once, and kept with the matrix.

    closed: the ``splits`` tiles that are split. Tile closed[j] has the parts from opening[j] to closing[j], the last.
    spread: the most parts after the first that a tile has.
    items: in the order of tiles, in int64.  of_split: which of them are parts.
    A subclass has ``segments``, the number of programs, and ``kernel``, which takes ``items`` in the order of programs,
    ``programs``, the sums of parts, the operands, and ``constants`` beside those of all kernels.
    """

    def __init__(self, matrix: CSR, size: int):
        """Split tiles."""
        offsets = matrix.offsets
        starts, lengths = offsets[:-1].long(), offsets.diff().long()
        counts = ((lengths + size - 1) // size).clamp(min=1)
        each = ((lengths + counts - 1) // counts + _ALIGNED - 1) // _ALIGNED * _ALIGNED  # atoms of each part
        counts = ((lengths + each - 1) // each.clamp(min=1)).clamp(min=1)  # of each tile: fewer if each is rounded up
        split = counts > 1
        self.closed = split.nonzero()[:, 0].to(offsets.dtype)
        self.splits = self.closed.numel()
        ends = counts[split].cumsum(0)
        self.opening, self.closing = (each.to(offsets.dtype) for each in (ends - counts[split], ends - 1))
        self.spread = int(counts.max()) - 1 if matrix.rows else 0
        self.parts = int(ends[-1]) if self.splits else 0

        tile = torch.repeat_interleave(counts)
        number = torch.arange(tile.numel(), device=offsets.device) - (counts.cumsum(0) - counts)[tile]
        begins = torch.minimum(starts[tile] + number * each[tile], offsets[tile + 1])
        stops = torch.minimum(begins + each[tile], offsets[tile + 1])
        self.of_split = split[tile]
        tile[self.of_split] = -1 - torch.arange(self.parts, device=offsets.device)
        self.items = Items(begins, stops, tile)
        self._storage: dict[Any, torch.Tensor] = {}

    def storage(self, width: int, dtype: torch.dtype, stream: int) -> torch.Tensor:
        """Return room for the sums of parts on a stream. Products on one stream follow each other, so they can share it."""
        key = stream, width, dtype
        if key not in self._storage:
            self._storage[key] = torch.empty(self.parts * width, dtype=dtype, device=self.closed.device)
        return self._storage[key]
