"""The product of gathered rows, in one kernel: own rows first, then those of each peer when they have come.

A PE's rows come in pieces. The flag of a piece holds the number of the last call in which it has come.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.ops import rounds
from pyshmem.ops.orders.chiplets import renumbered
from pyshmem.ops.orders.grouped import tile_at
from pyshmem.ops.products import operand, product
from pyshmem.ops.shares import share_size, share_start


@triton.jit(do_not_specialize=["before"])
def gather_and_multiply(
    ctx, words, flags, gathered, M, N, K, a_pitch, b_pitch, pitch, before, pieces, a, b, c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr,
    CHIPLETS: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """c (M, N) = rows of all PEs (M, K) @ b (K, N). The rows of PE p come in ``pieces`` pieces, each with a flag."""
    programs = tl.num_programs(0)
    program = renumbered(tl.program_id(0), programs, CHIPLETS)
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    number = rounds.enter(ctx, words)
    longest = tl.cdiv(M, n)
    high, columns = tl.cdiv(longest, BM), tl.cdiv(N, BN)
    depth = tl.cdiv(K, BK)
    own, right = share_size(M, me, n), operand(b, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED)
    mine = operand(a, own, K, a_pitch, BM, BK, A_ALONG, DESCRIBED)
    theirs = operand(gathered, M, K, K, BM, BK, True, DESCRIBED)
    share = high * columns
    for index in range(program, share, programs):  # two loops: descriptors cannot be chosen at run time
        i, j = tile_at(index, high, columns, GROUP)
        tile = product(
            mine, right, i * BM, j * BN, 0, depth, own, N, K, a_pitch, b_pitch, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED,
            WHOLE, PRECISION,
        )  # fmt: skip
        store_tile(tile, c, share_start(M, me, n), i * BM, j * BN, own, N, pitch, before, BM, BN, EDGES, EPILOGUE)
    begun = tl.cdiv(tl.maximum(share - program, 0), programs)  # so many tiles of this program are done
    for index in range(program + begun * programs, share * n, programs):
        pe = (me + index // share) % n
        i, j = tile_at(index % share, high, columns, GROUP)
        tall, row = share_size(M, pe, n), share_start(M, pe, n)
        await_rows(ctx, flags, number, pe, i * BM, tl.minimum(i * BM + BM, tall), tall, pieces)
        tile = product(
            theirs, right, row + i * BM, j * BN, 0, depth, M, N, K, K, b_pitch, BM, BN, BK, True, B_ALONG, DESCRIBED,
            WHOLE, PRECISION,
        )  # fmt: skip
        store_tile(tile, c, row, i * BM, j * BN, tall, N, pitch, before, BM, BN, EDGES, EPILOGUE)
    # all flags have come everywhere: no copy reads the stamp any more
    rounds.leave(ctx, words, number, tl.num_programs(0), True)


@triton.jit
def store_tile(
    tile, c, above, inner, column, height, N, pitch, before, BM: tl.constexpr, BN: tl.constexpr, EDGES: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Store a tile at (inner, column) of the ``height`` rows that begin at row ``above``."""
    r, q = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    if EPILOGUE is not None:
        tile = EPILOGUE(tile, above + inner + r, before + column + q)
    mask = (inner + r < height) & (column + q < N) if EDGES else (r >= 0) & (q >= 0)
    places = c + tl.cast(above + inner, tl.int64) * pitch + column + r * pitch + q
    tl.store(places, tile.to(c.dtype.element_ty), mask=mask)


@triton.jit
def await_rows(ctx, flags, number, pe, first, last, size, pieces):
    """Wait until the pieces with the rows first to last - 1 of ``pe``, which has ``size`` rows, have come."""
    for piece in range(pieces):
        if (share_start(size, piece, pieces) < last) & (share_start(size, piece + 1, pieces) > first):
            dev.signal_wait_until(ctx, flags + pe * pieces + piece, dev.CMP_GE, number)
