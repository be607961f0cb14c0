"""Where the segments of a matrix begin, found once for each schedule and size, and the storage that products need.

Both are kept with the matrix, so that a product neither searches nor allocates. Merrill and Garland (SC 2016) search in
each product instead.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.irregular.matrix import CSR, Marked
from pyshmem.irregular.schedules import Schedule


@triton.jit(do_not_specialize=["tiles", "atoms", "size"])
def begin_segments(offsets, tile_begins, atom_begins, tiles, atoms, size, BEGINS: tl.constexpr):
    """Store where each segment begins, and where the last one ends."""
    INDEX: tl.constexpr = offsets.dtype.element_ty
    segment = tl.cast(tl.program_id(0), INDEX)
    tile, atom = BEGINS(offsets, tl.cast(tiles, INDEX), tl.cast(atoms, INDEX), segment, tl.cast(size, INDEX))
    tl.store(tile_begins + segment, tile)
    tl.store(atom_begins + segment, atom)


class Cut:
    """A matrix cut into segments. pyshmem.irregular.execution says what products take from it.

    closed: the ``splits`` tiles that are split. Tile closed[j] begins in the segment opening[j] and ends in closing[j].
    spread: the most segments after the first that a tile is split over.
    vacant: the number of tiles without atoms, where they are needed.
    """

    def __init__(self, matrix: CSR, schedule: Schedule, size: int):
        """Search. Waits for torch's current stream."""
        offsets = matrix.offsets
        self.segments = schedule.segments(matrix.rows, matrix.atoms, size)
        tiles, atoms = (offsets.new_empty(self.segments + 1) for _ in range(2))
        begin_segments[(self.segments + 1,)](
            offsets, tiles, atoms, matrix.rows, matrix.atoms, size, BEGINS=schedule.begins, num_warps=1
        )
        self._storage: dict[Any, Any] = {}
        self.begins = atoms if schedule.flat else tiles
        self.closing = self.opening = self.closed = self.numbers = tiles[:0]
        self.marked = Marked(tiles[:0], tiles[:0], tiles[:0])
        self.spread = self.splits = self.vacant = 0
        if schedule.flat:
            self.marked = matrix.marked
            self.vacant = self.marked.empty.numel()
            filled = offsets[self.marked.filled.long()]
            self.numbers = torch.searchsorted(filled, self.begins).to(offsets.dtype)
        if schedule.splits:
            begun = atoms[:-1] > offsets[tiles[:-1].long()]
            closing = (begun & (tiles[1:] > tiles[:-1])).nonzero()[:, 0]
            opening = torch.searchsorted(tiles[1:], tiles[closing])
            self.closed, self.splits = tiles[closing], closing.numel()
            self.closing, self.opening = (each.to(offsets.dtype) for each in (closing, opening))
            self.spread = int((closing - opening).max()) if closing.numel() else 0
        if offsets.is_cuda:  # later products may be on other streams
            torch.cuda.current_stream(offsets.device).synchronize()

    def storage(self, width: int, dtype: torch.dtype, stream: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (heads, tails) of a stream: room for partial sums.

        Products on one stream follow each other, so they can share it.
        """
        storage = self._storage.get((stream, width, dtype))
        if storage is None:
            device = self.begins.device
            heads, tails = (torch.empty(self.segments * width, dtype=dtype, device=device) for _ in range(2))
            storage = self._storage[stream, width, dtype] = heads, tails
        return storage
