"""How a program goes through the atoms of a piece: in one sequence, or through several tiles side by side."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def joined(begun, sums, later_begun, later_sums):
    """The tiles that begin in two neighbouring stretches of atoms, and the sum of the tile that is open after them."""
    return begun + later_begun, tl.where(later_begun != 0, later_sums, sums + later_sums)


@triton.jit
def added(head, tail, begun, other_head, other_tail, other_begun):
    """Three sums at once."""
    return head + other_head, tail + other_tail, begun + other_begun


@triton.jit
def in_sequence(
    operands, marks, filled, atom, atom_end, number,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the atoms of a piece by tiles, with a segmented scan of BLOCK atoms at a time, and finish whole tiles.

    number: how many tiles of ``filled`` begin before the piece.
    Return (tail, head): of the tile in which the piece begins, if it ends here, and of the tile in which it ends.
    """
    lanes = tl.arange(0, WIDTH)[None, :]
    tail = tl.zeros((1, WIDTH), dtype=SUM)
    head = tl.zeros((1, WIDTH), dtype=SUM)  # of the tile that is open, at first that in which the piece begins
    seen = tl.zeros((1, 1), dtype=tl.int32)  # how many tiles have begun in the piece
    for start in range(atom, atom_end, BLOCK):
        atoms = start + tl.arange(0, BLOCK)[:, None]
        live = atoms < atom_end
        value = tl.where(live, ATOM(operands, atoms, lanes, live), 0).to(SUM)
        mark = tl.load(marks + (atoms >> 4), mask=live, other=0) >> ((atoms & 15) * 2).to(tl.int32)
        first = tl.broadcast_to(mark & 1, (BLOCK, WIDTH))
        begun, sums = tl.associative_scan((first, tl.broadcast_to(value, (BLOCK, WIDTH))), 0, joined)
        sums += tl.where(begun == 0, head, 0)
        ended = live & (mark & 2 != 0)
        tiles = seen + (begun if WIDTH == 1 else tl.max(begun, 1, keep_dims=True))  # all lanes have the same
        whole = ended & (tiles > 0)
        TILE(operands, tl.load(filled + number + tiles - 1, mask=whole, other=0), lanes, sums, whole)
        final = atoms == tl.minimum(start + BLOCK, atom_end) - 1
        parts = tl.where(final & (ended == 0), sums, 0), tl.where(ended & (tiles == 0), sums, 0), first
        head, ending, here = tl.reduce(parts, 0, added, keep_dims=True)
        tail += ending
        seen += here if WIDTH == 1 else tl.max(here, 1, keep_dims=True)
    return tail, head


@triton.jit
def within_tile(
    operands, marks, atom, atom_end, ATOM: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """Sum the atoms of a piece in which no tile begins, as in_sequence would, without a scan. Return (tail, head)."""
    lanes = tl.arange(0, WIDTH)[None, :]
    sums = tl.zeros((BLOCK, WIDTH), dtype=SUM)
    for start in range(atom, atom_end, BLOCK):
        atoms = start + tl.arange(0, BLOCK)[:, None]
        live = atoms < atom_end
        sums += tl.where(live, ATOM(operands, atoms, lanes, live), 0).to(SUM)
    whole = tl.sum(sums, axis=0, keep_dims=True)
    final = tl.maximum(atom_end - 1, 0)
    ended = tl.load(marks + (final >> 4)) >> ((final & 15) * 2).to(tl.int32) & 2
    return tl.where(ended != 0, whole, 0), tl.where(ended != 0, 0, whole)


@triton.jit
def finish_empty_tiles(
    operands, empty, first, last, TILE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """Finish the tiles from ``first`` to before ``last`` of ``empty``, whose sums are zeros."""
    for start in range(first, last, BLOCK):
        places = start + tl.arange(0, BLOCK)[:, None]
        live = places < last
        tiles = tl.load(empty + places, mask=live, other=0)
        TILE(operands, tiles, tl.arange(0, WIDTH)[None, :], tl.zeros((BLOCK, WIDTH), dtype=SUM), live)


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
