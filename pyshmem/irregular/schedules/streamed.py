"""Streamed: neighbouring tiles with about a thousand atoms, whose values are made all at once and then summed by tiles.

Atoms are loaded as they lie, and none of these loads waits for where tiles begin. Best for large matrices of short tiles of
like length: the longest of a program sets how often all of them are looked at. Works with several sums go by length.
Idea: CSR-Stream (Greathouse and Daga, SC 2014).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.base import interpreter
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.parts import Items, Parted
from pyshmem.irregular.schedules import by_length
from pyshmem.irregular.schedules.by_length import Sorted, sum_items
from pyshmem.irregular.values import values_of

# atoms of a program, its threads, how many atoms of a tile a thread adds, and of tiles that have no program of their own
_BLOCK, _THREADS, _DEEP, _LONGEST = (16, 4, 2, 8) if interpreter.active() else (1024, 128, 8, 128)
_VECTOR = 4  # atoms that a thread loads at once
_PASSES = 16  # a program has at most so many tiles for each thread: there may be many without atoms


class Side(NamedTuple):
    """How atoms of tiles of up to ``length`` lie beside each other: ``deep`` of each of ``lanes`` of each of ``tiles``."""

    length: int
    deep: int
    tiles: int
    lanes: int


class Blocks(NamedTuple):
    """Of each program: the tiles from ``firsts`` to before ``lasts``, or the item; their atoms; and its kind.

    offsets: of the matrix.
    """

    offsets: Any
    firsts: Any
    lasts: Any
    begins: Any
    ends: Any
    kinds: Any


@triton.jit
def execute_block(
    items, blocks, parts, operands,
    work: tl.constexpr, SIDES: tl.constexpr, KINDS: tl.constexpr, ALONE: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Sum the tiles of a program. SIDES: of each of KINDS, what follows the length.  EARLY: as by length.

    ALONE: of two kinds more, of one item of any number of atoms, how they lie beside each other: DEEP, LANES and VECTOR.
    """
    program = tl.program_id(0)
    kind, first, last, begin, end = (
        tl.load(blocks.kinds + program), tl.load(blocks.firsts + program), tl.load(blocks.lasts + program),
        tl.load(blocks.begins + program), tl.load(blocks.ends + program),
    )  # fmt: skip
    if EARLY:  # where programs begin never changes; the preceding kernel may write everything else
        gpu.follow()
    for number in tl.static_range(KINDS):
        if kind == number:
            sum_tiles(
                blocks.offsets, first, last, begin, end, operands, work,
                SIDES[number][0], SIDES[number][1], SIDES[number][2], ALONE[0][2], BLOCK,
            )  # fmt: skip
    for number in tl.static_range(2):
        if kind == KINDS + number:
            sum_items(
                items, first, last, parts, operands, work,
                ALONE[number][0], 1, ALONE[number][1], ALONE[number][2], True,
            )  # fmt: skip


@triton.jit
def sum_tiles(
    offsets, first, last, begin, end, operands, work: tl.constexpr,
    DEEP: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the tiles from ``first`` to before ``last``, which have the atoms from ``begin`` to before ``end``.

    Loads wait for no other load but those of x for columns. Then values are gathered from memory that threads share, TILES
    at a time, whose offsets are loaded while the tiles before are summed.
    """
    lanes = tl.zeros((1, 1), dtype=tl.int32)
    tile = first + tl.arange(0, TILES)[:, None]
    begins = tl.load(offsets + tile, mask=tile < last, other=0)
    ends = tl.load(offsets + tile + 1, mask=tile < last, other=0)
    start = begin // VECTOR * VECTOR
    # no atom may follow tiles without atoms
    limit = tl.where(begin < end, (end + VECTOR - 1) // VECTOR * VECTOR, start)
    atoms = (start + tl.arange(0, BLOCK))[None, :]
    near = atoms < limit
    value = tl.reshape(values_of(operands, atoms, lanes, near, near, work), (BLOCK,))
    inner = tl.arange(0, DEEP)[:, None, None] * LANES + tl.arange(0, LANES)[None, None, :]
    for base in range(first, last, TILES):
        tile = base + tl.arange(0, TILES)[:, None]
        place = (begins - start).to(tl.int32)[None, :, :] + inner
        inside = place < (ends - start).to(tl.int32)[None, :, :]
        following = tile + TILES
        begins = tl.load(offsets + following, mask=following < last, other=0)
        ends = tl.load(offsets + following + 1, mask=following < last, other=0)
        found = tl.gather(value, tl.reshape(tl.where(inside, place, 0), (DEEP * TILES * LANES,)), 0)
        found = tl.where(inside, tl.reshape(found, (DEEP, TILES, LANES)), 0)
        work.TILE(operands, tile, lanes, tl.sum(tl.sum(found, 0), 1, keep_dims=True), tile < last)


def sides() -> list[Side]:
    """Return how tiles lie beside each other, of each length."""
    found, length = [], 1
    while length <= _LONGEST:
        deep = min(length, _DEEP)
        lanes = length // deep
        found.append(Side(length, deep, _THREADS // lanes, lanes))
        length *= 2
    return found


def constants() -> dict[str, Any]:
    """Return what the kernel is compiled for."""
    most, table = _BLOCK // _THREADS, sides()
    alone = tuple((max(most // vector, 1), _BLOCK // max(most, vector), vector) for vector in (_VECTOR, 1))
    return {"SIDES": tuple(tuple(each[1:]) for each in table), "KINDS": len(table), "ALONE": alone, "BLOCK": _BLOCK}


class Streamed(Parted):
    """A matrix's tiles in their order, in blocks of neighbouring atoms, of works with one sum of a tile.

    ``size``: tiles of more atoms are split. Parts, long tiles, and one whose last vector would end behind the matrix have a
    program each.
    """

    kernel = execute_block

    def __init__(self, matrix: CSR, size: int):
        """Find the blocks, on torch's current stream."""
        super().__init__(matrix, size)
        self.constants = constants()
        offsets, table, (begins, ends, tiles) = matrix.offsets, sides(), self.items
        lengths = ends - begins
        beyond = (lengths > 0) & ((ends + _VECTOR - 1) // _VECTOR * _VECTOR > matrix.atoms)
        alone = self.of_split | (lengths > _LONGEST) | beyond
        heads, run = _heads(begins, lengths, alone)
        lasts = torch.cat([heads[1:], heads.new_full((1,), begins.numel())])
        most = torch.zeros_like(heads).scatter_reduce(0, run, lengths, "amax")
        kinds = torch.bucketize(most, torch.tensor([each.length for each in table], device=offsets.device))
        kinds = torch.where(alone[heads], len(table) + beyond[heads].long(), kinds)
        firsts = torch.where(alone[heads], alone.cumsum(0)[heads] - 1, tiles[heads])
        fields = firsts, firsts + lasts - heads, begins[heads], ends[lasts - 1]
        self.programs = Blocks(offsets, *(each.to(offsets.dtype) for each in fields), kinds.int())
        self.segments = heads.numel()
        self.items = Items(*(each[alone].to(offsets.dtype) for each in self.items))


def _heads(begins: torch.Tensor, lengths: torch.Tensor, alone: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (the first item of each program, the program of each item)."""
    longest = lengths.masked_fill(alone, 0).max()
    block = begins // (_BLOCK - _VECTOR + 1 - longest)  # atoms of tiles that begin in it fit, wherever vectors begin
    index = torch.arange(begins.numel(), device=begins.device)
    new = alone | (index == 0)
    new[1:] |= alone[:-1] | (block[1:] != block[:-1])
    heads = index[new]
    new |= (index - heads[new.cumsum(0) - 1]) % (_PASSES * _THREADS) == 0
    return index[new], new.cumsum(0) - 1


def streamed(matrix: CSR, size: int, width: int) -> Parted:
    """Return the programs of works with ``width`` sums: of one; others go by length."""
    return Streamed(matrix, size) if width == 1 else Sorted(matrix, size, width)


SCHEDULE = by_length.SCHEDULE._replace(parted=streamed)
