"""The product of gathered rows, in one kernel: own rows first, then those of each peer when they have come.

The kernel sends its own rows while it multiplies them: they are slabs of contiguous memory, a chunk is the slabs of a
tile's rows, and its flag counts the slabs that have come in all calls. What lies behind the last slab of a call counts as
come with it, so that each call adds as much to every flag, whatever its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.ops import protocol
from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.gemm.orders import STRIPS, add_part, iterations_of, part_at, sum_of_parts, tile_at
from pyshmem.ops.gemm.scaling import scaled, scales_of
from pyshmem.ops.gemm.tile import (
    Operands,
    Slabs,
    numbers_of,
    operand,
    product,
    product_sending,
    sizes_of,
)
from pyshmem.ops.shares import share_size, share_start


class Memory(NamedTuple):
    """The arrays of a plan. rows: (M, K), those of all PEs.  scales: of the rows of all PEs, or one of each PE.

    words: of rounds.  flags: ``chunks`` for each PE.  sums, tallies: of streamed tiles.
    """

    words: Any
    flags: Any
    rows: Any
    scales: Any
    sums: Any
    tallies: Any


class Gathered(NamedTuple):
    """The rows of all PEs, cut into tiles, in a call. columns: of tiles.  share: the tiles of a PE, of ``high`` rows.

    chunks: of the rows of a PE.  batch: the slabs of a chunk.
    """

    epoch: Any
    memory: Any
    shape: Any
    schedule: Any
    high: Any
    columns: Any
    share: Any
    chunks: Any
    batch: Any


class Place(NamedTuple):
    """Where a tile is: the PE whose rows it has, the first of these, and their number; the row among them; the column."""

    pe: Any
    above: Any
    tall: Any
    row: Any
    column: Any


class Result(NamedTuple):
    """Where tiles go: c, and the scales of this PE's operands."""

    c: Any
    scale_a: Any
    scale_b: Any


@triton.jit(do_not_specialize=["chunks"])
def gather_and_multiply(
    ctx, memory, chunks, shape, encoded, a, b, c, scale_a, scale_b, FORM: tl.constexpr, EPILOGUE: tl.constexpr
):
    """c (M, N) = rows of all PEs (M, K) @ b (K, N). The rows of a PE come in ``chunks`` chunks, each with a flag.

    Tiles of this PE's rows send, and are never streamed. A PE without columns has one empty column of tiles to send from.
    FORM.FAN: the peers to which this kernel sends the own rows.  encoded: the schedule.
    """
    schedule, shape = numbers_of(encoded), sizes_of(shape)
    programs = tl.num_programs(0)
    program = renumbered(tl.program_id(0), programs, FORM.CHIPLETS)
    me, n, epoch = dev.my_pe(ctx), dev.n_pes(ctx), protocol.enter(ctx, memory.words)
    M, N, K = shape.M, shape.N, shape.K
    high, columns, depth = tl.cdiv(tl.cdiv(M, n), FORM.BM), tl.maximum(tl.cdiv(N, FORM.BN), 1), tl.cdiv(K, FORM.BK)
    own, share = share_size(M, me, n), high * columns
    right = operand(b, N, K, shape.b_pitch, FORM.BN, FORM.BK, FORM.B_ALONG, FORM.DESCRIBED)
    mine = operand(a, own, K, shape.a_pitch, FORM.BM, FORM.BK, FORM.A_ALONG, FORM.DESCRIBED)
    every = operand(memory.rows, M, K, K, FORM.BM, FORM.BK, True, FORM.DESCRIBED)
    ours = Operands(mine, right, own, N, K, shape.a_pitch, shape.b_pitch)
    theirs = Operands(every, right, M, N, K, K, shape.b_pitch)
    batch = tl.maximum(slabs_in(FORM.BM, K, FORM.SLAB * FORM.BN), 1)
    gathered = Gathered(epoch, memory, shape, schedule, high, columns, share, chunks, batch)
    result = Result(c, scale_a, scale_b)
    slabs = slabs_in(own, K, FORM.SLAB * FORM.BN)
    for index in range(program, share, programs):  # two loops: descriptors cannot be chosen at run time
        i, j = tile_at(index, high, columns, FORM.GROUP)
        place = Place(me, share_start(M, me, n), own, i * FORM.BM, j * FORM.BN)
        first, last = slabs_of_turn(slabs, share, program, programs, index // programs)
        tile = own_tile(ctx, ours, place, gathered, first, last, a, scale_a, FORM)
        store_tile(tile, place, 0, scale_a, gathered, result, FORM.BM, FORM, EPILOGUE)
    begun = tl.cdiv(tl.maximum(share - program, 0), programs)  # so many tiles of this program are done
    for index in range(program + begun * programs, schedule.whole, programs):
        place = place_of(ctx, index, gathered, FORM)
        await_tile(ctx, gathered, place, FORM)
        tile = product(ctx, theirs, place.above + place.row, place.column, 0, depth, True, FORM)
        store_theirs(ctx, tile, place, 0, gathered, result, FORM.BM, FORM, EPILOGUE)
    if FORM.STREAMED:
        stream_theirs(ctx, theirs, gathered, result, program, FORM, EPILOGUE)
    protocol.leave(ctx, memory.words, epoch, tl.num_programs(0), True)


@triton.jit
def stream_theirs(ctx, ops, gathered, result, program, FORM: tl.constexpr, EPILOGUE: tl.constexpr):
    """Make the tiles of peers' rows from ``whole`` on: programs share their K iterations."""
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    schedule, memory = gathered.schedule, gathered.memory
    for group in range(schedule.whole, schedule.tiles, schedule.crowd):
        iterations = iterations_of(program, group, schedule, tl.cdiv(ops.K, FORM.BK), memory.sums, BM * BN)
        start = iterations.start
        while start < iterations.end:
            streamed, first, stop = part_at(start, iterations)
            place = place_of(ctx, group + streamed, gathered, FORM)
            await_tile(ctx, gathered, place, FORM)
            tile = product(ctx, ops, place.above + place.row, place.column, first, stop, True, FORM)
            tally = memory.tallies + (group - schedule.whole + streamed)
            if add_part(ctx, tile, iterations, tally, program, streamed, BM, BN):
                for down in range(0, BM, BM // STRIPS):
                    strip = sum_of_parts(iterations, streamed, down, BM, BN)
                    store_theirs(ctx, strip, place, down, gathered, result, BM // STRIPS, FORM, EPILOGUE)
            start += stop - first


@triton.jit
def place_of(ctx, index, gathered, FORM: tl.constexpr):
    """Return the place of a tile: those of this PE's rows have the first numbers, then those of the next PE's."""
    n, M = dev.n_pes(ctx), gathered.shape.M
    pe = (dev.my_pe(ctx) + index // gathered.share) % n
    i, j = tile_at(index % gathered.share, gathered.high, gathered.columns, FORM.GROUP)
    return Place(pe, share_start(M, pe, n), share_size(M, pe, n), i * FORM.BM, j * FORM.BN)


@triton.jit
def await_tile(ctx, gathered, place, FORM: tl.constexpr):
    """Wait until the rows of a tile have come."""
    flags, chunks, pe, tall = gathered.memory.flags, gathered.chunks, place.pe, place.tall
    if FORM.FAN > 0:
        SIZE: tl.constexpr = FORM.SLAB * FORM.BN
        batch, K = gathered.batch, gathered.shape.K
        await_slabs(ctx, flags + pe * chunks, gathered.epoch, place.row, FORM.BM, tall, K, batch, SIZE)


@triton.jit
def own_tile(ctx, ops, place, gathered, begin, end, a, scale_a, FORM: tl.constexpr):
    """Return a tile of own rows; if FORM.FAN is not 0, send the slabs begin to end - 1 of these rows meanwhile."""
    last = tl.cdiv(ops.K, FORM.BK)
    if FORM.FAN > 0:
        FAN: tl.constexpr = FORM.FAN
        memory, me, K = gathered.memory, dev.my_pe(ctx), ops.K
        dest, length = memory.rows + tl.cast(place.above, tl.int64) * K, tl.cast(place.tall, tl.int64) * K
        slabs = Slabs(a, dest, length, 1, 1, me + 1, FAN, begin, end - begin)
        tile = product_sending(ctx, ops, place.row, place.column, 0, last, slabs, FORM, FORM.CUT, True)
        send_scales(ctx, gathered, scale_a, place.tall, begin, end, FORM)
        count, chunks = slabs_in(place.tall, K, FORM.SLAB * FORM.BN), gathered.chunks
        tell_slabs(ctx, memory.flags + me * chunks, begin, end, count, chunks, gathered.batch)
        return tile
    else:
        return product(ctx, ops, place.row, place.column, 0, last, FORM.A_ALONG, FORM)


@triton.jit
def send_scales(ctx, gathered, scale_a, own, begin, end, FORM: tl.constexpr):
    """Store the scales of the rows of which the slabs begin to end - 1 hold a part on all peers, if there are any."""
    scales, M, K = gathered.memory.scales, gathered.shape.M, gathered.shape.K
    if scales is not None:
        SIZE: tl.constexpr = FORM.SLAB * FORM.BN
        me, n = dev.my_pe(ctx), dev.n_pes(ctx)
        if FORM.EACH:
            first = tl.cast(begin, tl.int64) * SIZE // K
            last = tl.minimum(tl.cdiv(tl.cast(end, tl.int64) * SIZE, K), own)
            for row in range(first, tl.where(end > begin, last, first), FORM.BM):
                lane = row + tl.arange(0, FORM.BM)
                values = tl.load(scale_a + lane, mask=lane < last, other=0.0)
                for i in range(1, n):
                    there, pe = scales_of(scales, M, n, me, True) + lane, (me + i) % n
                    dev.store(ctx, there, values, pe, lane < last)  # check: ignore, tiles of a row store the same
        else:
            for i in range(1, tl.where(end > begin, n, 1)):
                there, pe = scales_of(scales, M, n, me, False), (me + i) % n
                dev.store(ctx, there, tl.load(scale_a), pe)  # check: ignore, all tiles store the same


@triton.jit
def store_tile(
    tile, place, down, scale_a, gathered, result, HIGH: tl.constexpr, FORM: tl.constexpr, EPILOGUE: tl.constexpr
):
    """Store HIGH rows of a tile, from row ``down`` on, scaled."""
    c, pitch, N, column = result.c, gathered.shape.pitch, gathered.shape.N, place.column
    inner = place.row + down
    height = place.tall - inner
    tile = scaled(tile, scale_a, result.scale_b, inner, column, height, N - column, HIGH, FORM.BN, FORM.EACH)
    r, q = tl.arange(0, HIGH)[:, None], tl.arange(0, FORM.BN)[None, :]
    if EPILOGUE is not None:
        tile = EPILOGUE(tile, place.above + inner + r, gathered.schedule.before + column + q)
    mask = (inner + r < place.tall) & (column + q < N) if FORM.EDGES else (r >= 0) & (q >= 0)
    places = c + tl.cast(place.above + inner, tl.int64) * pitch + column + r * pitch + q
    tl.store(places, tile.to(c.dtype.element_ty), mask=mask)


@triton.jit
def store_theirs(
    ctx, tile, place, down, gathered, result, HIGH: tl.constexpr, FORM: tl.constexpr, EPILOGUE: tl.constexpr
):
    """Store a tile of a peer's rows, whose scales are gathered, if there are any."""
    scales = gathered.memory.scales
    if scales is None:
        store_tile(tile, place, down, None, gathered, result, HIGH, FORM, EPILOGUE)
    else:
        scale_a = scales_of(scales, gathered.shape.M, dev.n_pes(ctx), place.pe, FORM.EACH)
        store_tile(tile, place, down, scale_a, gathered, result, HIGH, FORM, EPILOGUE)


@triton.jit
def turns_of(tiles, program, programs):
    """Return in how many turns a program sends: not in a last turn that few programs have, so that peers wait less."""
    return tl.minimum(tl.cdiv(tiles - program, programs), tl.maximum((tiles + programs // 2) // programs, 1))


@triton.jit
def slabs_of_turn(slabs, tiles, program, programs, turn):
    """Return the first of ``slabs`` that a program sends in a turn, and that of the next turn."""
    senders, turns = tl.minimum(tiles, programs), turns_of(tiles, program, programs)
    return first_slab(slabs, program, senders, turn, turns), first_slab(slabs, program, senders, turn + 1, turns)


@triton.jit
def first_slab(slabs, program, programs, turn, turns):
    """Return the slab with which a turn of a program begins: programs, then their first ``turns``, have equal parts."""
    first = tl.cast(slabs, tl.int64) * program // programs
    length = tl.cast(slabs, tl.int64) * (program + 1) // programs - first
    return tl.cast(first + length * tl.minimum(turn, turns) // turns, tl.int32)


@triton.jit
def slabs_in(rows, K, SIZE: tl.constexpr):
    """Return how many slabs of SIZE elements hold the first ``rows`` rows of K elements."""
    return tl.cast(tl.cdiv(tl.cast(rows, tl.int64) * K, SIZE), tl.int32)


@triton.jit
def await_slabs(ctx, flags, epoch, first, count, tall, K, batch, SIZE: tl.constexpr):
    """Wait until ``count`` rows from ``first`` on, of the ``tall`` rows of a PE, have come ``epoch`` times."""
    last = tl.minimum(first + count, tall)
    begin = tl.cast(tl.cast(first, tl.int64) * K // SIZE, tl.int32)
    for chunk in range(begin // batch, tl.where(last > first, tl.cdiv(slabs_in(last, K, SIZE), batch), 0)):
        dev.signal_wait_until(ctx, flags + chunk, dev.CMP_GE, epoch * tl.cast(batch, tl.uint64))


@triton.jit
def tell_slabs(ctx, flags, begin, end, slabs, chunks, size):
    """Add the slabs begin to end - 1, which have been sent, to the flags of their chunks of ``size`` slabs on all peers.

    slabs: of the call, in up to ``chunks`` chunks.
    """
    end = tl.where((end == slabs) & (end > begin), chunks * size, end)
    for chunk in range(begin // size, tl.where(end > begin, tl.cdiv(end, size), 0)):
        count = tl.minimum(end, chunk * size + size) - tl.maximum(begin, chunk * size)
        for i in range(1, dev.n_pes(ctx)):
            dev.signal_add(ctx, flags + chunk, tl.cast(count, tl.uint64), (dev.my_pe(ctx) + i) % dev.n_pes(ctx))
