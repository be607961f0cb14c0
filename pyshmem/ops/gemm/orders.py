"""The orders in which programs make the tiles of a product, and which tiles several programs share.

Grouped: bands of GROUP rows of tiles, column by column, so that programs that run together share operands in L2.

By owner: tiles that belong to all PEs by their rows, those of peers ahead of this PE's own, in step with each other. A part
for a peer should be on its way while this PE computes, and an own tile needs the parts of all peers. So the tiles of each
owner are numbered alike, and cut into chunks: F(u) are the tiles of chunk u for the peers, O(u) the own ones. The order is
F(0), F(1), O(0), F(2), O(1), ..., O(last): communication goes on from the first tile to the last, and what an own tile waits
for was sent a whole chunk before.

Streamed: Stream-K, programs share the K iterations of the last tiles evenly (arXiv 2301.03598). The tiles from ``whole`` on
are streamed: their iterations form one sequence, and each program takes an equal part of it. A program that has only a part
of a tile stores its sum; the program that comes last to the tile adds the parts, always in the same order, so that the
result does not depend on which it is. No program waits for another one. A policy says how many waves of tiles, as many as
there are programs, are streamed: none (data-parallel), the last 1 to 5 (hybrids), or all. These are the seven policies of
Stream-K++ (arXiv 2408.11417). Programs that work at different K find each other's operands in L2 no more, so a further
policy streams the last wave in groups of half of the programs, one group after the other: all programs then work on few
tiles at once. A smaller group is also a smaller last message for operators that send each tile when it is done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev


@triton.jit
def tile_at(index, rows, columns, GROUP: tl.constexpr):
    """Return (row, column) of the tile ``index`` of a grid of rows x columns tiles. GROUP 1 is the order by rows."""
    band = GROUP * columns
    first = index // band * GROUP
    height = min(rows - first, GROUP)
    within = index % band
    return first + within % height, within // height


@triton.jit
def distance_and_number(index, each, n_pes, programs):
    """Return (distance, number) of the tile ``index``: the PE me + distance owns it, distance 0 is this PE.

    each: the tiles of an owner.  programs: the number running at once; F of a chunk has about as many tiles.
    """
    chunk = tl.cdiv(programs, tl.maximum(n_pes - 1, 1))
    chunks = tl.cdiv(each, chunk)
    first = tl.minimum(chunk, each) * (n_pes - 1)  # the tiles of F(0)
    later = index - first
    pair = tl.maximum(tl.minimum(later // (n_pes * chunk), chunks - 2), 0)  # F(pair + 1) and O(pair)
    within = later - pair * n_pes * chunk
    ahead = tl.maximum(tl.minimum(chunk, each - (pair + 1) * chunk), 0) * (n_pes - 1)  # the tiles of F(pair + 1)
    peers = tl.maximum(n_pes - 1, 1)
    start = (later < 0) | (within < ahead)  # the tile is a peer's
    place = tl.where(later < 0, index, within)
    base = tl.where(later < 0, 0, (pair + 1) * chunk)
    number = tl.where(start, base + place // peers, pair * chunk + within - ahead)
    return tl.where(start, 1 + place % peers, 0), number


STRIPS = tl.constexpr(4)  # the sum of a tile's parts is made in so many strips of rows, which need few registers


class Policy(NamedTuple):
    """waves: the last so many are streamed.  groups: of programs // groups tiles each; 0: all tiles are one group."""

    waves: int
    groups: int = 0


ALL_WAVES = 1 << 20
POLICIES = {
    "data_parallel": Policy(0),
    "streamed_1": Policy(1),
    "streamed_2": Policy(2),
    "streamed_3": Policy(3),
    "streamed_4": Policy(4),
    "streamed_5": Policy(5),
    "streamed": Policy(ALL_WAVES),
    "halves": Policy(1, 2),
}
STREAM_K = tuple(name for name, policy in POLICIES.items() if not policy.groups)  # the seven


def whole_tiles(tiles: int, programs: int, policy: Policy, cut: bool = True) -> int:
    """Return how many tiles are made whole by one program each. cut: whether a tile is deep enough for two parts."""
    if policy.waves == 0 or not cut:
        return tiles
    complete = tiles // programs * programs
    streamed = policy.waves - 1 if complete < tiles else policy.waves
    return max(complete - streamed * programs, 0)


def most_streamed(tiles: int, programs: int, policy: Policy, cut: bool = True) -> int:
    """Return how many tiles are streamed, at most, of a product of up to ``tiles``."""
    return min(tiles, policy.waves * programs) if cut else 0


def group_size(streamed: int, programs: int, policy: Policy) -> int:
    """Return the number of tiles in a group of streamed tiles."""
    return max(programs // policy.groups, 1) if policy.groups else max(streamed, 1)


class Iterations(NamedTuple):
    """A program's iterations of a group of streamed tiles, from ``start`` to before ``end``.

    sharing: the programs that share the group.  total: its iterations.  depth: those of a tile.
    sums: the partial sums of the group, two of each program.
    """

    start: Any
    end: Any
    sharing: Any
    total: Any
    depth: Any
    sums: Any


@triton.jit
def iterations_of(program, group, schedule, depth, sums, SIZE: tl.constexpr):
    """Return the iterations of ``program`` in the group of tiles from ``group`` on. SIZE: the elements of a tile.

    Parts have ``schedule.least`` iterations or more, where there are as many.
    """
    programs = tl.num_programs(0)
    members = tl.minimum(schedule.crowd, schedule.tiles - group)
    total = members * depth
    sharing = tl.minimum(programs, tl.maximum(members, total // schedule.least))
    start = first_iteration(tl.minimum(program, sharing), sharing, total)
    end = first_iteration(tl.minimum(program + 1, sharing), sharing, total)
    room = sums + tl.cast((group - schedule.whole) // schedule.crowd * 2 * programs, tl.int64) * SIZE
    return Iterations(start, end, sharing, total, depth, room)


@triton.jit
def part_at(start, iterations):
    """Return (tile of the group, first step of K, last step + 1) of the part of a tile that begins at ``start``."""
    streamed = start // iterations.depth
    first = start - streamed * iterations.depth
    return streamed, first, tl.minimum(iterations.depth, first + iterations.end - start)


@triton.jit
def first_iteration(program, programs, iterations):
    """Return where the part of ``program`` begins in a sequence of ``iterations``. That of ``programs`` is the end."""
    return tl.cast(tl.cast(program, tl.int64) * iterations // programs, tl.int32)


@triton.jit
def program_of(iteration, programs, iterations):
    """Return the program whose part holds ``iteration``."""
    return tl.cast(((tl.cast(iteration, tl.int64) + 1) * programs - 1) // iterations, tl.int32)


@triton.jit
def partial_sum(iterations, program, streamed, SIZE: tl.constexpr):
    """Return the pointer to the partial sum of ``program`` for a tile of a group. Each program has room for two.

    A part that begins in the tile or before it, and no other part of the program, is its first.
    """
    second = first_iteration(program, iterations.sharing, iterations.total) // iterations.depth != streamed
    return iterations.sums + tl.cast(program * 2 + tl.where(second, 1, 0), tl.int64) * SIZE


@triton.jit
def add_part(ctx, tile, iterations, tally, program, streamed, BM: tl.constexpr, BN: tl.constexpr):
    """Store this program's part of a streamed tile. Return whether it is the last part to come."""
    inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(partial_sum(iterations, program, streamed, BM * BN) + inside, tile)
    dev.fence(ctx)
    first, last = programs_of(iterations, streamed)
    before = dev.atomic_fetch_add(ctx, tally, 1, dev.my_pe(ctx))
    if before == last - first:
        tl.store(tally, 0)
    return before == last - first


@triton.jit
def programs_of(iterations, streamed):
    """Return the first and the last program with a part of a streamed tile."""
    first = program_of(streamed * iterations.depth, iterations.sharing, iterations.total)
    last = program_of(streamed * iterations.depth + iterations.depth - 1, iterations.sharing, iterations.total)
    return first, last


@triton.jit
def sum_of_parts(iterations, streamed, down, BM: tl.constexpr, BN: tl.constexpr):
    """Return BM // STRIPS rows, from ``down`` on, of the sum of a streamed tile's parts, added in the order of programs."""
    HIGH: tl.constexpr = BM // STRIPS
    inside = (down + tl.arange(0, HIGH)[:, None]) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((HIGH, BN), dtype=tl.float32)
    first, last = programs_of(iterations, streamed)
    for program in range(first, last + 1):
        total += tl.load(partial_sum(iterations, program, streamed, BM * BN) + inside)
    return total
