"""The product of gathered rows, in one kernel: own rows first, then those of each peer when they have come.

A PE's rows come in chunks, each with a flag. Where the copy engine brings them, the flag of a chunk holds the epoch of the
last call in which it has come. Where the kernel sends its own rows while it multiplies them, they are slabs of contiguous
memory, a chunk is the slabs of a tile's rows, and its flag counts the slabs that have come in all calls.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.kernels.compiled import like
from pyshmem.ops import protocol
from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.orders.grouped import tile_at
from pyshmem.ops.gemm.orders.streamed import STRIPS, add_part, iterations_of, part_at, sum_of_parts
from pyshmem.ops.gemm.problem import Operand, Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import gathered_scales, parameters, samples, scaled, scales_of
from pyshmem.ops.gemm.slabs import await_slabs, slabs_in, slabs_of_turn, tell_slabs
from pyshmem.ops.gemm.steps import Steps
from pyshmem.ops.gemm.tile import (
    Form,
    Operands,
    Slabs,
    numbers_of,
    operand,
    product,
    product_sending,
    shape_of,
    sizes_of,
)
from pyshmem.ops.shares import share_of, share_size, share_start
from pyshmem.ops.workspace import Workspace

CHUNKS = 4  # of the rows that the copy engine brings


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

    chunks: of the rows of a PE.  batch: the slabs of a chunk, if the kernel sends them.
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
    FORM.FAN: the peers to which this kernel sends the own rows; 0 where the copy engine does so.  encoded: the schedule.
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
    # all flags have come everywhere: no copy reads the stamp any more
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
    else:
        await_rows(ctx, flags, gathered.epoch, pe, place.row, tl.minimum(place.row + FORM.BM, tall), tall, chunks)


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
def await_rows(ctx, flags, epoch, pe, first, last, size, chunks):
    """Wait until the chunks with the rows first to last - 1 of ``pe``, which has ``size`` rows, have come."""
    for chunk in range(chunks):
        if (share_start(size, chunk, chunks) < last) & (share_start(size, chunk + 1, chunks) > first):
            dev.signal_wait_until(ctx, flags + pe * chunks + chunk, dev.CMP_GE, epoch)


class Gathering(Steps):
    """The kernel of a plan with its memory. Call it with arrays like a, b and out."""

    @classmethod
    def serves(cls, problem: Problem) -> bool:
        """All sizes of a product are numbers for its kernel. A PE without rows would not tell its flags."""
        return problem.n_pes <= problem.M

    def __init__(
        self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None, sends: bool
    ) -> None:
        """sends: whether the kernel sends the rows of a, which are contiguous then."""
        n, uint64 = problem.n_pes, torch.uint64
        aligned = problem.K * a.itemsize % 16 == 0  # of gathered rows
        self.layout, self.sends = problem.a._replace(aligned=aligned and problem.a.aligned), sends
        if sends:
            self.layout = Operand(True, max(problem.k, 1), aligned and a.data_ptr() % 16 == 0, a.dtype)
        self.product = Product(problem, problem.options.order, problem.M, self.layout, True)
        product, most = self._product(problem), -(-problem.M // n)
        self.chunks = max(-(-most // product.row.BM) if sends else min(CHUNKS, problem.M // n // 128), 1)
        self.space = workspace_of(
            problem,
            space,
            (problem.M,),  # with it, flags have the same places
            words=((protocol.words_of(n),), uint64),
            flags=((n, self.chunks), uint64),
            gathered=((problem.M, problem.K), a.dtype),
            tallies=((product.most_streamed,), uint64),
            **gathered_scales(problem),
        )
        self.words, self.flags = self.space["words"], self.space["flags"]
        self.groups = -1  # of streamed tiles, for which there are sums
        self.cut(problem, a, b)

    def _product(self, problem: Problem) -> Product:
        product = self.product.of(problem, problem.M)
        product.keep(product.tiles // problem.n_pes)
        return product

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        n, product = problem.n_pes, self._product(problem)
        if product.groups > self.groups:
            self.groups, self.kernels = product.groups, cache(self._preparing(problem, product, a, b))
        form = product.form(n - 1 if self.sends else 0, rows=problem.m)
        cut = self.sends and (form.EDGES or share_of(problem.M, 0, n) * problem.K % (form.SLAB * product.row.BN) > 0)
        numbers = self._shape(problem), product.schedule(0, problem.corner[1])
        self.kernel = self.kernels(form, cut).with_numbers(*numbers)

    def _shape(self, problem: Problem) -> Any:
        return shape_of(problem.M, problem.n, problem.K, self.layout.pitch, problem.b.pitch, max(problem.n, 1))

    def _preparing(self, problem: Problem, product: Product, a: torch.Tensor, b: torch.Tensor) -> Any:
        """Return what compiles the kernel in a form, for arrays like a and b."""
        memory = Memory(
            self.words, self.flags, self.space["gathered"], self.space.get("scales"), product.sums(a.device),
            self.space["tallies"],
        )  # fmt: skip
        numbers = self._shape(problem), product.schedule(0, problem.corner[1])
        arrays = like((a, b, a.new_empty(problem.result, dtype=problem.dtype), *samples(problem.scaling, a)))
        fixed = shmem.device_context(problem.team), memory, self.chunks

        def prepared(form: Form, cut: bool) -> Prepared:
            chosen = {"FORM": form._replace(CUT=cut), "EPILOGUE": problem.options.epilogue}
            constants = parameters(problem.scaling) | chosen
            return Prepared(
                gather_and_multiply, product.programs, (*fixed, *numbers), arrays, constants, **product.row.compiled
            )

        return prepared

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)
