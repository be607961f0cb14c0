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
from pyshmem.ops import rounds
from pyshmem.ops.launching import Prepared
from pyshmem.ops.multiplying import Product
from pyshmem.ops.orders.chiplets import renumbered
from pyshmem.ops.orders.grouped import tile_at
from pyshmem.ops.problem import Operand, Problem
from pyshmem.ops.products import operand, product, product_and_parcel
from pyshmem.ops.scaling import gathered_scales, samples, scaled, scales_of
from pyshmem.ops.shares import share_of, share_size, share_start
from pyshmem.ops.workspace import workspace_of

PIECES = 4  # of the rows that the copy engine brings


@triton.jit(do_not_specialize=["before"])
def gather_and_multiply(
    ctx, words, flags, gathered, scales, M, N, K, a_pitch, b_pitch, pitch, before, pieces, a, b, c, scale_a, scale_b,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr,
    CHIPLETS: tl.constexpr, EPILOGUE: tl.constexpr, EACH: tl.constexpr, SLAB: tl.constexpr, FAN: tl.constexpr,
    CUT: tl.constexpr,
):  # fmt: skip
    """c (M, N) = rows of all PEs (M, K) @ b (K, N). The rows of PE p come in ``pieces`` pieces, each with a flag.

    scales: those of the rows of all PEs, or one of each PE.
    FAN: the peers to which this kernel sends the own rows; 0 where the copy engine does so.
    CUT: whether slabs reach beyond the own rows.
    """
    programs = tl.num_programs(0)
    program = renumbered(tl.program_id(0), programs, CHIPLETS)
    me, n, number = dev.my_pe(ctx), dev.n_pes(ctx), rounds.enter(ctx, words)
    longest = tl.cdiv(M, n)
    high, columns = tl.cdiv(longest, BM), tl.cdiv(N, BN)
    depth = tl.cdiv(K, BK)
    own, top = share_size(M, me, n), share_start(M, me, n)
    right = operand(b, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED)
    mine = operand(a, own, K, a_pitch, BM, BK, A_ALONG, DESCRIBED)
    theirs = operand(gathered, M, K, K, BM, BK, True, DESCRIBED)
    share = high * columns
    crowd = tl.maximum(slabs_in(BM, K, SLAB * BN), 1)  # of a piece
    slabs = slabs_in(own, K, SLAB * BN)
    for index in range(program, share, programs):  # two loops: descriptors cannot be chosen at run time
        i, j = tile_at(index, high, columns, GROUP)
        begin, end = parcel_of(slabs, share, program, programs, index // programs)
        tile = own_tile(
            ctx, flags + me * pieces, gathered, scales, mine, right, i * BM, j * BN, own, M, N, K, a_pitch, b_pitch,
            begin, end, crowd, a, scale_a, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, PRECISION, EACH, SLAB, FAN,
            CUT,
        )  # fmt: skip
        store_tile(tile, scale_a, scale_b, c, top, i * BM, j * BN, own, N, pitch, before, BM, BN, EDGES, EPILOGUE, EACH)
    begun = tl.cdiv(tl.maximum(share - program, 0), programs)  # so many tiles of this program are done
    for index in range(program + begun * programs, share * n, programs):
        pe = (me + index // share) % n
        i, j = tile_at(index % share, high, columns, GROUP)
        tall, row = share_size(M, pe, n), share_start(M, pe, n)
        if FAN > 0:
            await_slabs(ctx, flags + pe * pieces, number, i * BM, BM, tall, K, crowd, SLAB * BN)
        else:
            await_rows(ctx, flags, number, pe, i * BM, tl.minimum(i * BM + BM, tall), tall, pieces)
        tile = product(
            theirs, right, row + i * BM, j * BN, 0, depth, M, N, K, K, b_pitch, BM, BN, BK, True, B_ALONG, DESCRIBED,
            WHOLE, PRECISION,
        )  # fmt: skip
        store_theirs(
            tile, scales, M, n, pe, scale_b, c, row, i * BM, j * BN, tall, N, pitch, before, BM, BN, EDGES, EPILOGUE, EACH,
        )  # fmt: skip
    # all flags have come everywhere: no copy reads the stamp any more
    rounds.leave(ctx, words, number, tl.num_programs(0), True)


@triton.jit
def own_tile(
    ctx, flags, gathered, scales, mine, right, row, column, own, M, N, K, a_pitch, b_pitch, begin, end, crowd, a,
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
        tell_slabs(ctx, flags, begin, end, crowd)
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
def turns_of(tiles, program, programs):
    """Return in how many turns a program sends: not in a last turn that few programs have, so that peers wait less."""
    return tl.minimum(tl.cdiv(tiles - program, programs), tl.maximum((tiles + programs // 2) // programs, 1))


@triton.jit
def parcel_of(slabs, tiles, program, programs, turn):
    """Return the first of ``slabs`` that a program sends in a turn, and that of the next turn."""
    senders, turns = tl.minimum(tiles, programs), turns_of(tiles, program, programs)
    return part_of(slabs, program, senders, turn, turns), part_of(slabs, program, senders, turn + 1, turns)


@triton.jit
def part_of(slabs, program, programs, turn, turns):
    """Return the slab with which a turn of a program begins: programs, then their first ``turns``, have equal parts."""
    first = tl.cast(slabs, tl.int64) * program // programs
    length = tl.cast(slabs, tl.int64) * (program + 1) // programs - first
    return tl.cast(first + length * tl.minimum(turn, turns) // turns, tl.int32)


@triton.jit
def slabs_in(rows, K, SIZE: tl.constexpr):
    """Return how many slabs of SIZE elements hold the first ``rows`` rows of K elements."""
    return tl.cast(tl.cdiv(tl.cast(rows, tl.int64) * K, SIZE), tl.int32)


@triton.jit
def await_slabs(ctx, flags, number, first, count, tall, K, crowd, SIZE: tl.constexpr):
    """Wait until ``count`` rows from ``first`` on, of the ``tall`` rows of a PE, have come ``number`` times."""
    last = tl.minimum(first + count, tall)
    slabs, begin = slabs_in(tall, K, SIZE), tl.cast(tl.cast(first, tl.int64) * K // SIZE, tl.int32)
    for piece in range(begin // crowd, tl.where(last > first, tl.cdiv(slabs_in(last, K, SIZE), crowd), 0)):
        due = tl.minimum(slabs - piece * crowd, crowd)
        dev.signal_wait_until(ctx, flags + piece, dev.CMP_GE, number * tl.cast(due, tl.uint64))


@triton.jit
def tell_slabs(ctx, flags, begin, end, size):
    """Add the slabs begin to end - 1, which have been sent, to the flags of their pieces of ``size`` slabs on all peers."""
    for piece in range(begin // size, tl.where(end > begin, tl.cdiv(end, size), 0)):
        count = tl.minimum(end, piece * size + size) - tl.maximum(begin, piece * size)
        for i in range(1, dev.n_pes(ctx)):
            dev.signal_add(ctx, flags + piece, tl.cast(count, tl.uint64), (dev.my_pe(ctx) + i) % dev.n_pes(ctx))


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
        product = Product(problem._replace(a=layout), "data_parallel", problem.M, layout, True)
        row, most = product.row, -(-problem.M // n)
        self.pieces = max(-(-most // row.BM) if sends else min(PIECES, problem.M // n // 128), 1)
        self.space = workspace_of(
            problem,
            words=((rounds.words_of(n),), uint64),
            flags=((n, self.pieces), uint64),
            gathered=((problem.M, problem.K), a.dtype),
            **gathered_scales(problem),
        )
        self.words, self.flags, self.gathered = (self.space[name] for name in ("words", "flags", "gathered"))
        scales = self.space.get("scales")
        out = a.new_empty(problem.result, dtype=problem.dtype)
        fixed = (
            shmem.device_context(problem.team), self.words, self.flags, self.gathered, scales, problem.M, problem.n,
            problem.K, layout.pitch, problem.b.pitch, max(out.stride(0), 1), problem.corner[1], self.pieces,
        )  # fmt: skip
        constants: dict[str, Any] = product.constants(0, 0)
        slab = constants["SLAB"]
        for name in ("KIND", "STREAMED", "VECTOR", "SLAB", "FAN"):
            del constants[name]
        cut = bool(problem.M % n or share_of(problem.M, 0, n) * problem.K % (slab * row.BN))
        sending = {"SLAB": slab, "FAN": n - 1 if sends else 0, "CUT": cut}
        self.kernel = Prepared(
            gather_and_multiply, product.programs, fixed, (a, b, out, *samples(problem.scaling, a)),
            constants | sending, num_warps=row.warps, num_stages=row.stages,
        )  # fmt: skip

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)
