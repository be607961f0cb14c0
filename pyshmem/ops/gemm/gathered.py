"""The product of gathered rows, in one kernel: own rows first, then those of each peer when they have come.

A PE's rows come in pieces, each with a flag. Where the copy engine brings them, the flag of a piece holds the number of the
last call in which it has come. Where the kernel sends its own rows while it multiplies them, they are slabs of contiguous
memory, a piece is the slabs of a tile's rows, and its flag counts the slabs that have come in all calls.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.kernels.launching import Prepared
from pyshmem.ops import rounds
from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.orders.grouped import tile_at
from pyshmem.ops.gemm.orders.streamed import STRIPS, add_part, sum_of_parts, turn_of
from pyshmem.ops.gemm.problem import Operand, Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import gathered_scales, samples, scaled, scales_of
from pyshmem.ops.gemm.slabs import await_slabs, parcel_of, slabs_in, tell_slabs
from pyshmem.ops.gemm.tile import operand, product, product_and_parcel
from pyshmem.ops.shares import share_of, share_size, share_start

PIECES = 4  # of the rows that the copy engine brings


@triton.jit(do_not_specialize=["before", "whole", "tiles", "crowd", "least"])
def gather_and_multiply(
    ctx, words, flags, gathered, scales, sums, tallies, M, N, K, a_pitch, b_pitch, pitch, before, pieces, whole, tiles,
    crowd, least, a, b, c, scale_a, scale_b,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr,
    CHIPLETS: tl.constexpr, STREAMED: tl.constexpr, EPILOGUE: tl.constexpr, EACH: tl.constexpr, SLAB: tl.constexpr,
    FAN: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """c (M, N) = rows of all PEs (M, K) @ b (K, N). The rows of PE p come in ``pieces`` pieces, each with a flag.

    scales: those of the rows of all PEs, or one of each PE.
    sums, tallies, whole, tiles, crowd, least: as in fused.multiply_and_send. Tiles of own rows, which send, are whole.
    FAN: the peers to which this kernel sends the own rows; 0 where the copy engine does so.
    CUT: whether slabs reach beyond the own rows.
    """
    programs = tl.num_programs(0)
    program = renumbered(tl.program_id(0), programs, CHIPLETS)
    me, n, number = dev.my_pe(ctx), dev.n_pes(ctx), rounds.enter(ctx, words)
    longest = tl.cdiv(M, n)
    high, columns, depth = tl.cdiv(longest, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    own, top = share_size(M, me, n), share_start(M, me, n)
    right = operand(b, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED)
    mine = operand(a, own, K, a_pitch, BM, BK, A_ALONG, DESCRIBED)
    theirs = operand(gathered, M, K, K, BM, BK, True, DESCRIBED)
    share = high * columns
    batch = tl.maximum(slabs_in(BM, K, SLAB * BN), 1)  # of a piece
    slabs = slabs_in(own, K, SLAB * BN)
    for index in range(program, share, programs):  # two loops: descriptors cannot be chosen at run time
        i, j = tile_at(index, high, columns, GROUP)
        begin, end = parcel_of(slabs, share, program, programs, index // programs)
        tile = own_tile(
            ctx, flags + me * pieces, gathered, scales, mine, right, i * BM, j * BN, own, M, N, K, a_pitch, b_pitch,
            begin, end, batch, a, scale_a, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, PRECISION, EACH, SLAB, FAN,
            CUT,
        )  # fmt: skip
        store_tile(tile, scale_a, scale_b, c, top, i * BM, j * BN, own, N, pitch, before, BM, BN, EDGES, EPILOGUE, EACH)
    begun = tl.cdiv(tl.maximum(share - program, 0), programs)  # so many tiles of this program are done
    for index in range(program + begun * programs, whole, programs):
        pe, above, row, column, tall = theirs_at(ctx, index, share, high, columns, M, BM, BN, GROUP)
        await_tile(ctx, flags, number, pe, row, tall, K, pieces, batch, BM, SLAB * BN, FAN)
        tile = product(
            theirs, right, above + row, column, 0, depth, M, N, K, K, b_pitch, BM, BN, BK, True, B_ALONG, DESCRIBED, WHOLE,
            PRECISION,
        )  # fmt: skip
        store_theirs(
            tile, scales, M, n, pe, scale_b, c, above, row, column, tall, N, pitch, before, BM, BN, EDGES, EPILOGUE, EACH,
        )  # fmt: skip
    if STREAMED:
        stream_theirs(
            ctx, flags, scales, sums, tallies, number, program, theirs, right, share, high, columns, M, N, K, b_pitch,
            pitch, before, pieces, batch, whole, tiles, crowd, least, c, scale_b, BM, BN, BK, B_ALONG, DESCRIBED, WHOLE,
            EDGES, PRECISION, GROUP, EPILOGUE, EACH, SLAB, FAN,
        )  # fmt: skip
    # all flags have come everywhere: no copy reads the stamp any more
    rounds.leave(ctx, words, number, tl.num_programs(0), True)


@triton.jit
def stream_theirs(
    ctx, flags, scales, sums, tallies, number, program, theirs, right, share, high, columns, M, N, K, b_pitch, pitch, before,
    pieces, batch, whole, tiles, crowd, least, c, scale_b,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, B_ALONG: tl.constexpr, DESCRIBED: tl.constexpr,
    WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr,
    EACH: tl.constexpr, SLAB: tl.constexpr, FAN: tl.constexpr,
):  # fmt: skip
    """Make the tiles of peers' rows from ``whole`` on: programs share their K iterations."""
    programs, depth = tl.num_programs(0), tl.cdiv(K, BK)
    for group in range(whole, tiles, crowd):
        start, end, sharing, iterations = turn_of(program, programs, tl.minimum(crowd, tiles - group), depth, least)
        room = sums + tl.cast((group - whole) // crowd * 2 * programs, tl.int64) * (BM * BN)
        while start < end:
            streamed = start // depth
            first = start - streamed * depth
            stop = tl.minimum(depth, first + end - start)
            pe, above, row, column, tall = theirs_at(ctx, group + streamed, share, high, columns, M, BM, BN, GROUP)
            await_tile(ctx, flags, number, pe, row, tall, K, pieces, batch, BM, SLAB * BN, FAN)
            tile = product(
                theirs, right, above + row, column, first, stop, M, N, K, K, b_pitch, BM, BN, BK, True, B_ALONG,
                DESCRIBED, WHOLE, PRECISION,
            )  # fmt: skip
            tally = tallies + (group - whole + streamed)
            if add_part(ctx, tile, room, tally, program, sharing, streamed, depth, iterations, BM, BN):
                for down in range(0, BM, BM // STRIPS):
                    part = sum_of_parts(room, streamed, depth, sharing, iterations, down, BM, BN)
                    store_theirs(
                        part, scales, M, dev.n_pes(ctx), pe, scale_b, c, above, row + down, column, tall, N, pitch,
                        before, BM // STRIPS, BN, EDGES, EPILOGUE, EACH,
                    )  # fmt: skip
            start += stop - first


@triton.jit
def theirs_at(ctx, index, share, high, columns, M, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Return (PE, its first row, row within its rows, column, number of its rows) of a tile."""
    n = dev.n_pes(ctx)
    pe = (dev.my_pe(ctx) + index // share) % n
    i, j = tile_at(index % share, high, columns, GROUP)
    return pe, share_start(M, pe, n), i * BM, j * BN, share_size(M, pe, n)


@triton.jit
def await_tile(
    ctx, flags, number, pe, row, tall, K, pieces, batch, BM: tl.constexpr, SIZE: tl.constexpr, FAN: tl.constexpr
):
    """Wait until the rows of a tile, from ``row`` on of the ``tall`` rows of ``pe``, have come."""
    if FAN > 0:
        await_slabs(ctx, flags + pe * pieces, number, row, BM, tall, K, batch, SIZE)
    else:
        await_rows(ctx, flags, number, pe, row, tl.minimum(row + BM, tall), tall, pieces)


@triton.jit
def own_tile(
    ctx, flags, gathered, scales, mine, right, row, column, own, M, N, K, a_pitch, b_pitch, begin, end, batch, a,
    scale_a,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr, EACH: tl.constexpr, SLAB: tl.constexpr,
    FAN: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Return a tile of own rows; if FAN is not 0, send the slabs begin to end - 1 of these rows meanwhile."""
    if FAN > 0:
        me = dev.my_pe(ctx)
        dest, length = gathered + tl.cast(share_start(M, me, dev.n_pes(ctx)), tl.int64) * K, tl.cast(own, tl.int64) * K
        tile = product_and_parcel(
            ctx, mine, right, row, column, 0, tl.cdiv(K, BK), own, N, K, a_pitch, b_pitch, a, dest, length, 1, 1, me + 1,
            FAN, begin, end - begin, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, PRECISION, SLAB, FAN, CUT, True,
        )  # fmt: skip
        send_scales(ctx, scales, scale_a, own, M, K, begin, end, SLAB * BN, BM, EACH)
        tell_slabs(ctx, flags, begin, end, batch)
        return tile
    else:
        return product(
            mine, right, row, column, 0, tl.cdiv(K, BK), own, N, K, a_pitch, b_pitch, BM, BN, BK, A_ALONG, B_ALONG,
            DESCRIBED, WHOLE, PRECISION,
        )  # fmt: skip


@triton.jit
def send_scales(ctx, scales, scale_a, own, M, K, begin, end, SIZE: tl.constexpr, BM: tl.constexpr, EACH: tl.constexpr):
    """Store the scales of the rows of which the slabs begin to end - 1 hold a part on all peers, if there are any."""
    if scales is not None:
        me, n = dev.my_pe(ctx), dev.n_pes(ctx)
        if EACH:
            first = tl.cast(begin, tl.int64) * SIZE // K
            last = tl.minimum(tl.cdiv(tl.cast(end, tl.int64) * SIZE, K), own)
            for row in range(first, tl.where(end > begin, last, first), BM):
                lane = row + tl.arange(0, BM)
                values = tl.load(scale_a + lane, mask=lane < last, other=0.0)
                for i in range(1, n):
                    dev.store(ctx, scales_of(scales, M, n, me, EACH) + lane, values, (me + i) % n, lane < last)
        else:
            for i in range(1, tl.where(end > begin, n, 1)):
                dev.store(ctx, scales_of(scales, M, n, me, EACH), tl.load(scale_a), (me + i) % n)


@triton.jit
def store_tile(
    tile, scale_a, scale_b, c, above, inner, column, height, N, pitch, before, BM: tl.constexpr, BN: tl.constexpr,
    EDGES: tl.constexpr, EPILOGUE: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Store a tile, scaled, at (inner, column) of the ``height`` rows that begin at row ``above``."""
    tile = scaled(tile, scale_a, scale_b, inner, column, height - inner, N - column, BM, BN, EACH)
    r, q = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    if EPILOGUE is not None:
        tile = EPILOGUE(tile, above + inner + r, before + column + q)
    mask = (inner + r < height) & (column + q < N) if EDGES else (r >= 0) & (q >= 0)
    places = c + tl.cast(above + inner, tl.int64) * pitch + column + r * pitch + q
    tl.store(places, tile.to(c.dtype.element_ty), mask=mask)


@triton.jit
def store_theirs(
    tile, scales, M, n, pe, scale_b, c, above, inner, column, height, N, pitch, before, BM: tl.constexpr,
    BN: tl.constexpr, EDGES: tl.constexpr, EPILOGUE: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Store a tile of the rows of ``pe``, whose scales are gathered, if there are any."""
    if scales is None:
        store_tile(tile, None, None, c, above, inner, column, height, N, pitch, before, BM, BN, EDGES, EPILOGUE, EACH)
    else:
        scale_a = scales_of(scales, M, n, pe, EACH)
        store_tile(
            tile, scale_a, scale_b, c, above, inner, column, height, N, pitch, before, BM, BN, EDGES, EPILOGUE, EACH
        )


@triton.jit
def await_rows(ctx, flags, number, pe, first, last, size, pieces):
    """Wait until the pieces with the rows first to last - 1 of ``pe``, which has ``size`` rows, have come."""
    for piece in range(pieces):
        if (share_start(size, piece, pieces) < last) & (share_start(size, piece + 1, pieces) > first):
            dev.signal_wait_until(ctx, flags + pe * pieces + piece, dev.CMP_GE, number)


class Gathering:
    """The kernel of a plan with its memory. Call it with arrays like a, b and out."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, sends: bool) -> None:
        """sends: whether the kernel sends the rows of a, which are contiguous then."""
        n, uint64 = problem.n_pes, torch.uint64
        layout = Operand(True, max(problem.k, 1), problem.k * a.itemsize % 16 == 0, a.dtype) if sends else problem.a
        product = Product(problem._replace(a=layout), problem.options.order, problem.M, layout, True)
        product.keep(product.tiles // n)
        row, most = product.row, -(-problem.M // n)
        self.pieces = max(-(-most // row.BM) if sends else min(PIECES, problem.M // n // 128), 1)
        self.space = workspace_of(
            problem,
            words=((rounds.words_of(n),), uint64),
            flags=((n, self.pieces), uint64),
            gathered=((problem.M, problem.K), a.dtype),
            tallies=((product.most_streamed,), uint64),
            **gathered_scales(problem),
        )
        self.words, self.flags, self.gathered = (self.space[name] for name in ("words", "flags", "gathered"))
        scales = self.space.get("scales")
        out = a.new_empty(problem.result, dtype=problem.dtype)
        fixed = (
            shmem.device_context(problem.team), self.words, self.flags, self.gathered, scales, product.sums(a.device),
            self.space["tallies"], problem.M, problem.n, problem.K, layout.pitch, problem.b.pitch, max(out.stride(0), 1),
            problem.corner[1], self.pieces, *product.streamed,
        )  # fmt: skip
        constants: dict[str, Any] = product.constants(0, 0)
        slab = constants["SLAB"]
        for name in ("KIND", "VECTOR", "SLAB", "FAN"):
            del constants[name]
        cut = bool(problem.M % n or share_of(problem.M, 0, n) * problem.K % (slab * row.BN))
        sending = {"SLAB": slab, "FAN": n - 1 if sends else 0, "CUT": cut}
        self.kernel = Prepared(
            gather_and_multiply, product.programs, fixed, (a, b, out, *samples(problem.scaling, a)),
            constants | sending, num_warps=row.warps, num_stages=row.stages,
        )  # fmt: skip

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)
