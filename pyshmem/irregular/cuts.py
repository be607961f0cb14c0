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

LONG = 1024  # atoms of a piece's last tile, which is then summed by itself: a scan costs more than another pass over a block


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

    closed: the tiles that are split, ``splits`` in number. One begins in the piece opening[j] and ends in closing[j].
    spread: over how many pieces after the first at most.  vacant: the number of tiles without atoms, if they are needed.
    lasts: where pieces end but for a last tile that is long, or the only one.
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
        self.closing = self.opening = self.closed = self.numbers = self.lasts = tiles[:0]
        self.marked = Marked(tiles[:0], tiles[:0], tiles[:0])
        self.spread = self.splits = self.vacant = 0
        if schedule.flat:
            self.marked = matrix.marked
            self.vacant = self.marked.empty.numel()
            self.numbers = torch.searchsorted(offsets[self.marked.filled.long()], atoms).to(offsets.dtype)
        if schedule.flat and not schedule.splits:
            self.lasts = self._before_long_tiles(offsets, atoms)
        if schedule.splits:
            begun = atoms[:-1] > offsets[tiles[:-1].long()]
            closing = (begun & (tiles[1:] > tiles[:-1])).nonzero()[:, 0]
            opening = torch.searchsorted(tiles[1:], tiles[closing])
            self.closed, self.splits = tiles[closing], closing.numel()
            self.closing, self.opening = (each.to(offsets.dtype) for each in (closing, opening))
            self.spread = int((closing - opening).max()) if closing.numel() else 0
        if offsets.is_cuda:  # later products may be on other streams
            torch.cuda.current_stream(offsets.device).synchronize()

    def _before_long_tiles(self, offsets: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
        """Return where the last tile of each piece begins if it is long or the only one, and where the piece ends if not."""
        found = self.numbers.diff()
        if not self.marked.filled.numel():
            return atoms[1:]
        last = offsets[self.marked.filled[(self.numbers[1:].long() - 1).clamp(min=0)].long()]
        alone = (found == 1) | ((found > 1) & (atoms[1:] - last >= LONG))
        return torch.where(alone, last, atoms[1:])

    def storage(self, width: int, dtype: torch.dtype, stream: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return (heads, tails, queue) of a stream: the sums of split tiles' parts, and a zero.

        Products on one stream follow each other, so they can share it.
        """
        found = self._storage.get((stream, width, dtype))
        if found is None:
            device = self.begins.device
            heads, tails = (torch.empty(self.pieces * width, dtype=dtype, device=device) for _ in range(2))
            found = heads, tails, torch.zeros(1, dtype=torch.int32, device=device)
            self._storage[stream, width, dtype] = found
        return found
