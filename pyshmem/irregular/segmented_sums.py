"""Segmented sums: how a program sums the atoms of a segment by tiles, in one scan or several tiles side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from pyshmem.irregular.granularity import WIDE
from pyshmem.irregular.matrix import ALIGNMENT
from pyshmem.irregular.values import values_of

ALIGNED = tl.constexpr(ALIGNMENT)


class Rows(NamedTuple):
    """The arrays of a matrix that kernels read: its offsets, and those of Marks."""

    offsets: Any
    marks: Any
    filled: Any
    empty: Any


class Atoms(NamedTuple):
    """The atoms of a segment, from ``begin`` to before ``end``. stored: the atoms of the matrix.

    first, after: how many tiles with atoms begin before the segment, and before its end.
    """

    begin: Any
    end: Any
    stored: Any
    first: Any
    after: Any


class Partial(NamedTuple):
    """Sums of tiles that are split, of each segment: of the tile in which it ends, and of the one in which it begins.

    The latter only if that tile ends in the segment.
    """

    heads: Any
    tails: Any


@triton.jit
def joined(begun, sums, later_begun, later_sums):
    """The tiles that begin in two neighbouring stretches of atoms, and the sum of the tile that is open after them."""
    return begun + later_begun, tl.where(later_begun != 0, later_sums, sums + later_sums)


@triton.jit
def block_of(operands, start, atoms, work: tl.constexpr, BLOCK: tl.constexpr):
    """Return the places of a block of atoms, their values with zeros outside the segment, and which are inside.

    Loads are masked from a multiple of ALIGNED on, so that those of a vector are masked alike. What they bring of the
    neighbours' atoms is in cache for the neighbours.
    """
    WIDTH: tl.constexpr = work.WIDTH
    lanes = tl.arange(0, WIDTH)[:, None]
    places = start + tl.arange(0, BLOCK)[None, :]
    limit = aligned_up(atoms.end)
    live = (places >= atoms.begin) & (places < atoms.end)
    if limit <= atoms.stored:
        value = values_of(operands, places, lanes, live, places < limit, work)
    else:
        value = values_of(operands, places, lanes, live, live, work)
    return places, tl.broadcast_to(value, (WIDTH, BLOCK)), live


@triton.jit
def aligned_up(atom):
    """Return the first multiple of ALIGNED from ``atom`` on."""
    return (atom + ALIGNED - 1) // ALIGNED * ALIGNED


@triton.jit
def in_sequence(operands, rows, atoms, work: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the atoms of a segment by tiles, with a segmented scan of BLOCK atoms at a time, and finish whole tiles.

    Return (tail, head): of the tile in which the segment begins, if it ends here, and of the tile in which it ends.
    """
    WIDTH: tl.constexpr = work.WIDTH
    lanes = tl.arange(0, WIDTH)[:, None]
    tail = tl.zeros((WIDTH, 1), dtype=work.SUM)
    head = tl.zeros((WIDTH, 1), dtype=work.SUM)  # of the open tile, at first that in which the segment begins
    seen = tl.zeros((1, 1), dtype=tl.int32)  # how many tiles have begun in the segment
    for start in range(atoms.begin // ALIGNED * ALIGNED, atoms.end, BLOCK):
        places, value, live = block_of(operands, start, atoms, work, BLOCK)
        mark = tl.where(live, tl.load(rows.marks + places, mask=places < aligned_up(atoms.end), other=0), 0)
        first = tl.broadcast_to((mark & 1).to(tl.int32), (WIDTH, BLOCK))
        place = tl.arange(0, BLOCK)[None, :]
        value += tl.where((place == 0) & (first == 0), head, 0)  # atoms outside the segment carry the sum on
        begun, sums = tl.associative_scan((first, value), 1, joined)
        ended = mark & 2 != 0
        tiles = seen + (begun if WIDTH == 1 else tl.max(begun, 0, keep_dims=True))  # all lanes have the same
        whole = ended & (tiles > 0)
        work.TILE(operands, tl.load(rows.filled + atoms.first + tiles - 1, mask=whole, other=0), lanes, sums, whole)
        partial = tl.where(place == BLOCK - 1, sums, 0), tl.where(ended & (tiles == 0), sums, 0)
        last, ending = tl.reduce(partial, 1, both_added, keep_dims=True)
        tail += ending
        head = tl.where(ends_tile(rows.marks, tl.minimum(start + BLOCK, atoms.end)), 0, last)
        if start + BLOCK < atoms.end:
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
def within_tile(operands, rows, atoms, work: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the atoms of a segment in which no tile begins, as in_sequence would, without a scan. Return (tail, head)."""
    WIDTH: tl.constexpr = work.WIDTH
    if WIDTH >= WIDE:
        first, end = tl.full((1, 1), atoms.begin, atoms.begin.dtype), tl.full((1, 1), atoms.end, atoms.end.dtype)
        whole = tl.reshape(sums_beside(operands, first, end, work, 1, BLOCK), (WIDTH, 1))
    else:
        sums = tl.zeros((WIDTH, BLOCK), dtype=work.SUM)
        for start in range(atoms.begin // ALIGNED * ALIGNED, atoms.end, BLOCK):
            _, value, _ = block_of(operands, start, atoms, work, BLOCK)
            sums += value
        whole = tl.sum(sums, 1, keep_dims=True)
    ended = ends_tile(rows.marks, atoms.end)
    return tl.where(ended, whole, 0), tl.where(ended, 0, whole)


@triton.jit
def finish_empty_tiles(operands, empty, first, last, work: tl.constexpr, BLOCK: tl.constexpr):
    """Finish the tiles from ``first`` to before ``last`` of ``empty``, whose sums are zeros."""
    WIDTH: tl.constexpr = work.WIDTH
    for start in range(first, last, BLOCK):
        places = start + tl.arange(0, BLOCK)[:, None]
        live = places < last
        tiles = tl.load(empty + places, mask=live, other=0)
        zeros = tl.zeros((BLOCK, WIDTH), dtype=work.SUM)
        work.TILE(operands, tiles, tl.arange(0, WIDTH)[None, :], zeros, live)


@triton.jit
def side_by_side(operands, offsets, tile, tile_end, work: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Sum whole tiles, ROWS at a time with LANES atoms of each."""
    WIDTH: tl.constexpr = work.WIDTH
    for start in range(tile, tile_end, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        live = rows < tile_end
        first = tl.load(offsets + rows, mask=live, other=0)
        end = tl.load(offsets + rows + 1, mask=live, other=0)
        sums = sums_beside(operands, first, end, work, ROWS, LANES)
        work.TILE(operands, rows, tl.arange(0, WIDTH)[None, :], sums, live)


@triton.jit
def sums_beside(operands, first, end, work: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Return the sums, (ROWS, WIDTH), of the atoms from ``first`` to before ``end`` of ROWS tiles."""
    WIDTH: tl.constexpr = work.WIDTH
    lanes, beside = tl.arange(0, WIDTH)[None, None, :], tl.arange(0, LANES)[None, :, None]
    sums = tl.zeros((ROWS, LANES, WIDTH), dtype=work.SUM)
    for step in range(0, tl.max(end - first), LANES):
        places = first[:, :, None] + step + beside
        inside = places < end[:, :, None]
        sums += values_of(operands, places, lanes, inside, inside, work)
    return tl.sum(sums, axis=1)


@triton.jit
def side_by_side_in_segment(
    operands, rows, atoms, first, partial, work: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """Sum the atoms of a segment by tiles as in_sequence does, without a scan: ROWS tiles, LANES atoms of each at a time.

    first: the first of ``filled`` that has atoms in the segment.
    partial: where sums of split tiles go, if SPLITS: a head always, a tail if a tile ends that begins before the segment.
    """
    WIDTH: tl.constexpr = work.WIDTH
    lanes = tl.arange(0, WIDTH)[None, :]
    for start in range(first, atoms.after, ROWS):
        places = start + tl.arange(0, ROWS)[:, None]
        live = places < atoms.after
        tiles = tl.load(rows.filled + places, mask=live, other=0)
        begin = tl.load(rows.offsets + tiles, mask=live, other=0)
        end = tl.load(rows.offsets + tiles + 1, mask=live, other=0)
        inner, inner_end = tl.maximum(begin, atoms.begin), tl.minimum(end, atoms.end)
        sums = sums_beside(operands, inner, inner_end, work, ROWS, LANES)
        if SPLITS:
            whole = live & (begin >= atoms.begin) & (end <= atoms.end)
            head = tl.where(end > atoms.end, sums, 0)  # zeros if no tile is open after the segment
            tl.store(partial.heads + lanes + places * 0, head, mask=places == atoms.after - 1)
            tail = live & (begin < atoms.begin) & (end <= atoms.end)
            tl.store(partial.tails + lanes + places * 0, sums, mask=tail)
        else:
            whole = live
        work.TILE(operands, tiles, lanes, sums, whole)
