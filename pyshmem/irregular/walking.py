"""How a program goes through the atoms of a piece: in one sequence, or through several tiles side by side."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.irregular.matrix import ALIGNMENT
from pyshmem.irregular.sizing import WIDE

ALIGNED = tl.constexpr(ALIGNMENT)


@triton.jit
def joined(begun, sums, later_begun, later_sums):
    """The tiles that begin in two neighbouring stretches of atoms, and the sum of the tile that is open after them."""
    return begun + later_begun, tl.where(later_begun != 0, later_sums, sums + later_sums)


@triton.jit
def block_of(
    operands, start, atom, atom_end, stored,
    ATOM: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Return the atoms of a block, what they give, zeros for those outside the piece, and which are inside.

    Loads are masked from a multiple of ALIGNED on, so that those of a vector are masked alike. What they bring of the
    neighbours' atoms is in cache for the neighbours.
    """
    lanes = tl.arange(0, WIDTH)[:, None]
    atoms = start + tl.arange(0, BLOCK)[None, :]
    limit = aligned_up(atom_end)
    live = (atoms >= atom) & (atoms < atom_end)
    if limit <= stored:
        value = tl.where(live, ATOM(operands, atoms, lanes, atoms < limit), 0)
    else:
        value = tl.where(live, ATOM(operands, atoms, lanes, live), 0)
    return atoms, tl.broadcast_to(value.to(SUM), (WIDTH, BLOCK)), live


@triton.jit
def aligned_up(atom):
    """Return the first multiple of ALIGNED from ``atom`` on."""
    return (atom + ALIGNED - 1) // ALIGNED * ALIGNED


@triton.jit
def in_sequence(
    operands, marks, filled, atom, atom_end, stored, number,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the atoms of a piece by tiles, with a segmented scan of BLOCK atoms at a time, and finish whole tiles.

    number: how many tiles of ``filled`` begin before the piece.
    Return (tail, head): of the tile in which the piece begins, if it ends here, and of the tile in which it ends.
    """
    lanes = tl.arange(0, WIDTH)[:, None]
    tail = tl.zeros((WIDTH, 1), dtype=SUM)
    head = tl.zeros((WIDTH, 1), dtype=SUM)  # of the tile that is open, at first that in which the piece begins
    seen = tl.zeros((1, 1), dtype=tl.int32)  # how many tiles have begun in the piece
    for start in range(atom // ALIGNED * ALIGNED, atom_end, BLOCK):
        atoms, value, live = block_of(operands, start, atom, atom_end, stored, ATOM, SUM, BLOCK, WIDTH)
        mark = tl.where(live, tl.load(marks + atoms, mask=atoms < aligned_up(atom_end), other=0), 0)
        first = tl.broadcast_to((mark & 1).to(tl.int32), (WIDTH, BLOCK))
        place = tl.arange(0, BLOCK)[None, :]
        value += tl.where((place == 0) & (first == 0), head, 0)  # atoms outside the piece carry the sum on
        begun, sums = tl.associative_scan((first, value), 1, joined)
        ended = mark & 2 != 0
        tiles = seen + (begun if WIDTH == 1 else tl.max(begun, 0, keep_dims=True))  # all lanes have the same
        whole = ended & (tiles > 0)
        TILE(operands, tl.load(filled + number + tiles - 1, mask=whole, other=0), lanes, sums, whole)
        parts = tl.where(place == BLOCK - 1, sums, 0), tl.where(ended & (tiles == 0), sums, 0)
        last, ending = tl.reduce(parts, 1, both_added, keep_dims=True)
        tail += ending
        head = tl.where(ends_tile(marks, tl.minimum(start + BLOCK, atom_end)), 0, last)
        if start + BLOCK < atom_end:
            here = tl.sum(first, 1, keep_dims=True)
            seen += here if WIDTH == 1 else tl.max(here, 0, keep_dims=True)
    return tail, head


@triton.jit
def both_added(head, tail, other_head, other_tail):
    """Two sums at once."""
    return head + other_head, tail + other_tail


@triton.jit
def ends_tile(marks, atom):
    """Whether the atom before ``atom`` is the last of its tile."""
    return tl.load(marks + tl.maximum(atom - 1, 0)) & 2 != 0


@triton.jit
def within_tile(
    operands, marks, atom, atom_end, stored,
    ATOM: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the atoms of a piece in which no tile begins, as in_sequence would, without a scan. Return (tail, head)."""
    if WIDTH >= WIDE:
        first, end = tl.full((1, 1), atom, atom.dtype), tl.full((1, 1), atom_end, atom.dtype)
        whole = tl.reshape(sums_beside(operands, first, end, ATOM, SUM, 1, BLOCK, WIDTH), (WIDTH, 1))
    else:
        sums = tl.zeros((WIDTH, BLOCK), dtype=SUM)
        for start in range(atom // ALIGNED * ALIGNED, atom_end, BLOCK):
            _, value, _ = block_of(operands, start, atom, atom_end, stored, ATOM, SUM, BLOCK, WIDTH)
            sums += value
        whole = tl.sum(sums, 1, keep_dims=True)
    ended = ends_tile(marks, atom_end)
    return tl.where(ended, whole, 0), tl.where(ended, 0, whole)


@triton.jit
def only_tile(
    operands, marks, filled, atom, atom_end, stored, number,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the atoms of a piece that is one whole tile, number ``number`` of ``filled``, without a scan, and finish it."""
    whole, _ = within_tile(operands, marks, atom, atom_end, stored, ATOM, SUM, BLOCK, WIDTH)
    tile = tl.full((1, 1), tl.load(filled + number), filled.dtype.element_ty)
    TILE(operands, tile, tl.arange(0, WIDTH)[:, None], whole, tile >= 0)


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
    for start in range(tile, tile_end, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        live = rows < tile_end
        first = tl.load(offsets + rows, mask=live, other=0)
        end = tl.load(offsets + rows + 1, mask=live, other=0)
        sums = sums_beside(operands, first, end, ATOM, SUM, ROWS, LANES, WIDTH)
        TILE(operands, rows, tl.arange(0, WIDTH)[None, :], sums, live)


@triton.jit
def sums_beside(
    operands, first, end, ATOM: tl.constexpr, SUM: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Return the sums, (ROWS, WIDTH), of the atoms from ``first`` to before ``end`` of ROWS tiles."""
    lanes, beside = tl.arange(0, WIDTH)[None, None, :], tl.arange(0, LANES)[None, :, None]
    sums = tl.zeros((ROWS, LANES, WIDTH), dtype=SUM)
    for step in range(0, tl.max(end - first), LANES):
        atoms = first[:, :, None] + step + beside
        inside = atoms < end[:, :, None]
        sums += tl.where(inside, ATOM(operands, atoms, lanes, inside), 0).to(SUM)
    return tl.sum(sums, axis=1)


@triton.jit
def side_by_side_in_piece(
    operands, offsets, filled, atom, atom_end, number, after, heads, tails,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
    LANES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the atoms of a piece by tiles, as in_sequence does, without a scan: ROWS tiles at a time, LANES atoms of each.

    number, after: the tiles of ``filled`` that have atoms in the piece.  heads, tails: where the sums go that in_sequence
    returns, if SPLITS; that at tails only if a tile ends which begins before the piece.
    """
    lanes = tl.arange(0, WIDTH)[None, :]
    for start in range(number, after, ROWS):
        places = start + tl.arange(0, ROWS)[:, None]
        live = places < after
        tiles = tl.load(filled + places, mask=live, other=0)
        first = tl.load(offsets + tiles, mask=live, other=0)
        end = tl.load(offsets + tiles + 1, mask=live, other=0)
        inner, inner_end = tl.maximum(first, atom), tl.minimum(end, atom_end)
        sums = sums_beside(operands, inner, inner_end, ATOM, SUM, ROWS, LANES, WIDTH)
        if SPLITS:
            whole = live & (first >= atom) & (end <= atom_end)
            head = tl.where(end > atom_end, sums, 0)  # zeros if no tile is open after the piece
            tl.store(heads + lanes + places * 0, head, mask=places == after - 1)
            tl.store(tails + lanes + places * 0, sums, mask=live & (first < atom) & (end <= atom_end))
        else:
            whole = live & (end <= atom_end)
        TILE(operands, tiles, lanes, sums, whole)
