"""Where the pieces of a matrix begin, found once for each schedule and size, and the storage that products of them need.

Both are kept with the matrix, so that a product neither searches nor allocates. Merrill and Garland (SC 2016) search in each
product instead.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.irregular.matrix import ALIGNMENT, CSR, Marked
from pyshmem.irregular.schedules import Schedule

LONG = 128  # atoms of a tile that is a piece by itself, at least: then no program makes a second pass behind its scan


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
    longest: the most atoms of a piece but those of one tile, from where its loads begin.
    spread: over how many pieces after the first at most.  vacant: the number of tiles without atoms, if they are needed.
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
        self.closing = self.opening = self.closed = self.numbers = tiles[:0]
        self.marked = Marked(tiles[:0], tiles[:0], tiles[:0])
        self.spread = self.splits = self.vacant = self.longest = 0
        if schedule.flat:
            self.marked = matrix.marked
            self.vacant = self.marked.empty.numel()
            filled = offsets[self.marked.filled.long()]
            if schedule.whole:
                self.begins = _apart(atoms, filled, long_from(size))
                self.pieces = self.begins.numel() - 1
            self.numbers = torch.searchsorted(filled, self.begins).to(offsets.dtype)
            self.longest = self._longest()
        if schedule.splits:
            begun = atoms[:-1] > offsets[tiles[:-1].long()]
            closing = (begun & (tiles[1:] > tiles[:-1])).nonzero()[:, 0]
            opening = torch.searchsorted(tiles[1:], tiles[closing])
            self.closed, self.splits = tiles[closing], closing.numel()
            self.closing, self.opening = (each.to(offsets.dtype) for each in (closing, opening))
            self.spread = int((closing - opening).max()) if closing.numel() else 0
        if offsets.is_cuda:  # later products may be on other streams
            torch.cuda.current_stream(offsets.device).synchronize()

    def _longest(self) -> int:
        lengths = self.begins[1:] - self.begins[:-1] // ALIGNMENT * ALIGNMENT
        return int(torch.where(self.numbers.diff() == 1, 1, lengths).max())

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


def long_from(size: int) -> int:
    """Return how many atoms a tile has at least that is a piece by itself, of a schedule of whole tiles."""
    return max(size // 4, LONG)


def _apart(begins: torch.Tensor, filled: torch.Tensor, long: int) -> torch.Tensor:
    """Return where pieces begin if a last tile of ``long`` atoms is one by itself. filled: where tiles with atoms begin."""
    if not filled.numel():
        return begins
    after = torch.searchsorted(filled, begins[1:])  # tiles before the end of each piece
    last = filled[(after - 1).clamp(min=0)]
    found = (last > begins[:-1]) & (begins[1:] - last >= long)
    return torch.cat((begins, last[found])).sort().values
