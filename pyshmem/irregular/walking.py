"""How a program goes through the atoms of a piece: in one sequence, or through several tiles side by side."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of(offsets, atoms, first, last):
    """Return the tile of each of ``atoms``, which are in the tiles first to last, by a binary search."""
    low, high = first + atoms * 0, last + atoms * 0
    left = last - first
    while left > 0:
        middle = (low + high + 1) // 2
        begun = tl.load(offsets + middle) <= atoms
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle - 1)
        left = left // 2
    return low


@triton.jit
def joined(first, sums, later_first, later_sums):
    """The sum of two neighbouring stretches of atoms: if a tile begins in the later one, the sum begins with it."""
    return first | later_first, tl.where(later_first != 0, later_sums, sums + later_sums)


@triton.jit
def in_sequence(
    operands, offsets, tiles, tile, atom, tile_end, atom_end,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the atoms of a piece by tiles, with a segmented scan of BLOCK atoms at a time, and finish whole tiles.

    Return (tail, head): of the tile in which the piece begins, if it ends here, and of the tile in which it ends.
    """
    lanes = tl.arange(0, WIDTH)[None, :]
    rows = tl.arange(0, BLOCK)[:, None]
    begun = atom > tl.load(offsets + tile)
    head = tl.zeros((1, WIDTH), dtype=SUM)
    tail = tl.zeros((1, WIDTH), dtype=SUM)
    current = tile
    for start in range(atom, atom_end, BLOCK):
        atoms = start + rows
        live = atoms < atom_end
        found = tile_of(offsets, atoms, current, tl.minimum(tile_end, tiles - 1))
        value = tl.where(live, ATOM(operands, atoms, lanes, live), 0).to(SUM)
        first = tl.where(atoms == tl.load(offsets + found), 1, 0)
        _, sums = tl.associative_scan(
            (tl.broadcast_to(first, (BLOCK, WIDTH)), tl.broadcast_to(value, (BLOCK, WIDTH))), 0, joined
        )
        sums += tl.where(found == current, head, 0)
        ended = live & (atoms + 1 == tl.load(offsets + found + 1))
        cut = begun & (found == tile)
        TILE(operands, found, lanes, sums, ended & (cut == 0))
        tail += tl.sum(tl.where(ended & cut, sums, 0), axis=0, keep_dims=True)
        last = atoms == tl.minimum(start + BLOCK, atom_end) - 1
        head = tl.sum(tl.where(last & (ended == 0), sums, 0), axis=0, keep_dims=True)
        current = tl.max(tl.where(last, found, 0))
    for start in range(tile, tile_end, BLOCK):  # no atom ends an empty tile
        empty = start + rows
        live = empty < tile_end
        length = tl.load(offsets + empty + 1, mask=live, other=1) - tl.load(offsets + empty, mask=live, other=0)
        TILE(operands, empty, lanes, tl.zeros((BLOCK, WIDTH), dtype=SUM), live & (length == 0))
    return tail, head


@triton.jit
def side_by_side(
    operands, offsets, tile, tile_end,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum whole tiles, ROWS at a time with LANES atoms of each."""
    lanes = tl.arange(0, WIDTH)[None, :]
    beside = tl.arange(0, LANES)[None, :, None]
    for start in range(tile, tile_end, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        live = rows < tile_end
        first = tl.load(offsets + rows, mask=live, other=0)
        end = tl.load(offsets + rows + 1, mask=live, other=0)
        sums = tl.zeros((ROWS, LANES, WIDTH), dtype=SUM)
        for step in range(0, tl.max(end - first), LANES):
            atoms = first[:, :, None] + step + beside
            inside = atoms < end[:, :, None]
            sums += tl.where(inside, ATOM(operands, atoms, lanes[None, :, :], inside), 0).to(SUM)
        TILE(operands, rows, lanes, tl.sum(sums, axis=1), live)
