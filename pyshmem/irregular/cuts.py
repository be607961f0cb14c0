"""Where the pieces of a matrix begin, found once for each schedule and size, and the storage that products of them need.

Both are kept with the matrix, so that a product neither searches nor allocates. Merrill and Garland (SC 2016) search in each
product instead.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.irregular.matrix import CSR, Marked
from pyshmem.irregular.schedules import Schedule


@triton.jit(do_not_specialize=["tiles", "atoms", "size"])
def begin_pieces(offsets, tile_begins, atom_begins, tiles, atoms, size, BEGINS: tl.constexpr):
    """Store where each piece begins, and where the last one ends."""
    INDEX: tl.constexpr = offsets.dtype.element_ty
    piece = tl.cast(tl.program_id(0), INDEX)
    tile, atom = BEGINS(offsets, tl.cast(tiles, INDEX), tl.cast(atoms, INDEX), piece, tl.cast(size, INDEX))
    tl.store(tile_begins + piece, tile)
    tl.store(atom_begins + piece, atom)


class Cut:
    """A matrix cut into pieces. What products take from it is said in pyshmem.irregular.execution.

    closed, opening, closing, joins: as in Splits. Tiles that are split are ``splits`` in number, and each goes on in at most
    ``spread`` pieces after that in which it begins.  vacant: the number of tiles without atoms, if they are needed.
    """

    def __init__(self, matrix: CSR, schedule: Schedule, size: int):
        """Search. Waits for torch's current stream."""
        offsets = matrix.offsets
        self.pieces = schedule.pieces(matrix.rows, matrix.atoms, size)
        tiles, atoms = (offsets.new_empty(self.pieces + 1) for _ in range(2))
        begin_pieces[(self.pieces + 1,)](
            offsets, tiles, atoms, matrix.rows, matrix.atoms, size, BEGINS=schedule.begins, num_warps=1
        )
        self._storage: dict[Any, Any] = {}
        self.begins = atoms if schedule.flat else tiles
        self.closing = self.opening = self.closed = self.joins = self.numbers = tiles[:0]
        self.marked = Marked(tiles[:0], tiles[:0], tiles[:0])
        self.spread = self.splits = self.vacant = 0
        if schedule.flat:
            self.marked = matrix.marked
            self.vacant = self.marked.empty.numel()
            self.numbers = torch.searchsorted(offsets[self.marked.filled.long()], atoms).to(offsets.dtype)
        if schedule.splits:
            begun = atoms[:-1] > offsets[tiles[:-1].long()]
            closing = (begun & (tiles[1:] > tiles[:-1])).nonzero()[:, 0]
            opening = torch.searchsorted(tiles[1:], tiles[closing])
            self.closed, self.splits = tiles[closing], closing.numel()
            joins = torch.searchsorted(closing, torch.arange(self.pieces, device=offsets.device))
            self.closing, self.opening, self.joins = (each.to(offsets.dtype) for each in (closing, opening, joins))
            self.opening = torch.nn.functional.pad(self.opening, (0, 1), value=self.pieces)
            self.spread = int((closing - opening).max()) if closing.numel() else 0
        if offsets.is_cuda:  # later products may be on other streams
            torch.cuda.current_stream(offsets.device).synchronize()

    def storage(self, width: int, dtype: torch.dtype, stream: int) -> tuple[torch.Tensor, ...]:
        """Return (heads, tails, arrived, queue) of a stream: the sums of split tiles' parts, their numbers, and a zero.

        Products on one stream follow each other, so they can share it.
        """
        found = self._storage.get((stream, width, dtype))
        if found is None:
            device = self.begins.device
            heads, tails = (torch.empty(self.pieces * width, dtype=dtype, device=device) for _ in range(2))
            arrived, queue = (torch.zeros(count, dtype=torch.int32, device=device) for count in (self.splits, 1))
            found = self._storage[stream, width, dtype] = (heads, tails, arrived, queue)
        return found
