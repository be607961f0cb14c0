"""One kernel: each program sends a tile in slabs from the K loop of its next one, and its last tile from registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.ops import rounds
from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.gemm import few_rows
from pyshmem.ops.gemm.gathered import Gathering
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.orders.by_owner import distance_and_number
from pyshmem.ops.gemm.orders.grouped import tile_at
from pyshmem.ops.gemm.orders.streamed import STRIPS, add_part, sum_of_parts, turn_of
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import scaled
from pyshmem.ops.gemm.tile import load_slab, operand, product_and_parcel, slab_indices, store_slab
from pyshmem.ops.shares import share_size, share_start

# What becomes of a tile. ALONE: stored here.  ROWS, COLUMNS: stored on all PEs, in this PE's rows or columns of c.
# SCATTER: added up on the PE that owns its rows.  REDUCE: added up there and stored on all PEs.
ALONE, ROWS, COLUMNS, SCATTER, REDUCE = (tl.constexpr(i) for i in range(5))


@triton.constexpr_function
def adds(kind: int) -> bool:
    """Whether tiles of all PEs are added up."""
    return kind >= 3


@triton.constexpr_function
def shows(kind: int) -> bool:
    """Whether results are stored on all PEs."""
    return kind in (1, 2, 4)


@triton.jit(do_not_specialize=["above", "before", "whole", "tiles", "crowd", "least"])
def multiply_and_send(
    ctx, words, sums, tallies, parts, slots, marks, M, N, K, a_pitch, b_pitch, pitch, above, before, whole, tiles,
    crowd, least, a, b, c, scale_a, scale_b,
    KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr,
    B_ALONG: tl.constexpr, DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr,
    SLAB: tl.constexpr, FAN: tl.constexpr, GROUP: tl.constexpr, CHIPLETS: tl.constexpr, STREAMED: tl.constexpr,
    VECTOR: tl.constexpr, EPILOGUE: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Multiply a (M, K) by b (K, N) and send the tiles as KIND says.

    words, sums, tallies, parts, slots, marks: the plan's memory.  above, before: the rows and columns of c in front of the
    product; before in units of VECTOR elements, so that the compiler knows that addresses are multiples of them.
    whole: as many of the ``tiles`` are not streamed; the others are, in groups of ``crowd``, in parts of ``least`` blocks of
    K or more.
    FAN: the most PEs that a tile is sent to.
    """
    programs = tl.num_programs(0)
    program = renumbered(tl.program_id(0), programs, CHIPLETS)
    number = tl.cast(1, tl.uint64) if KIND == ALONE else rounds.enter(ctx, words)
    if shows(KIND):
        if tl.program_id(0) == programs - 1:  # it has the fewest tiles
            rounds.arrive(ctx, words, number)
    corner = c + tl.cast(above, tl.int64) * pitch + before * VECTOR if (KIND == ROWS) | (KIND == COLUMNS) else c
    left = operand(a, M, K, a_pitch, BM, BK, A_ALONG, DESCRIBED)
    right = operand(b, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED)
    depth = tl.cdiv(K, BK)
    met = 0  # whether all peers have let this program write to their results
    source, dest, mark, to, fan, height, width = corner, corner, 0, 0, 0, 0, 0
    for index in range(program, whole, programs):
        distance, tile_number, row, column, inner, tall = place_of(ctx, index, M, N, KIND, BM, BN, GROUP)
        tile = product_and_parcel(
            ctx, left, right, row, column, 0, depth, M, N, K, a_pitch, b_pitch, source, dest, height, width, pitch, to,
            fan, 0, BM // SLAB, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, PRECISION, SLAB, FAN, EDGES,
        )  # fmt: skip
        set_mark(ctx, marks, mark, to, number, KIND)
        met = meet(ctx, words, marks, number, distance, tile_number, tiles, met, KIND)
        last = (not STREAMED) & (index + programs >= whole)
        source, dest, to, fan = settle(
            ctx, tile, number, corner, parts, slots, distance, row, column, inner, tall, N - column, M, above, before,
            pitch, last, scale_a, scale_b, KIND, BM, BN, FAN, EDGES, VECTOR, EPILOGUE, EACH,
        )  # fmt: skip
        height, width = tall, N - column
        mark = mark_of(ctx, distance, tile_number, tiles, KIND)
        if last:
            set_mark(ctx, marks, mark, to, number, KIND)
        tl.debug_barrier()  # other threads load the parcel
    if STREAMED:
        stream_tiles(
            ctx, words, sums, tallies, parts, slots, marks, M, N, K, a_pitch, b_pitch, pitch, above, before, whole, tiles,
            crowd, least, left, right, corner, program, number, met, source, dest, mark, to, fan, height, width,
            scale_a, scale_b, KIND, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, EDGES, PRECISION, SLAB, FAN, GROUP,
            VECTOR, EPILOGUE, EACH,
        )  # fmt: skip
    if KIND != ALONE:
        rounds.leave(ctx, words, number, programs, shows(KIND))


@triton.jit
def stream_tiles(
    ctx, words, sums, tallies, parts, slots, marks, M, N, K, a_pitch, b_pitch, pitch, above, before, whole, tiles,
    crowd, least, left, right, corner, program, number, met, source, dest, mark, to, fan, height, width, scale_a, scale_b,
    KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr,
    B_ALONG: tl.constexpr, DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr,
    SLAB: tl.constexpr, FAN: tl.constexpr, GROUP: tl.constexpr, VECTOR: tl.constexpr, EPILOGUE: tl.constexpr,
    EACH: tl.constexpr,
):  # fmt: skip
    """Make the tiles from ``whole`` on: programs share their K iterations. The parcel is that of the last whole tile."""
    programs, depth = tl.num_programs(0), tl.cdiv(K, BK)
    for group in range(whole, tiles, crowd):
        start, end, sharing, iterations = turn_of(program, programs, tl.minimum(crowd, tiles - group), depth, least)
        room = sums + tl.cast((group - whole) // crowd * 2 * programs, tl.int64) * (BM * BN)
        while start < end:
            streamed = start // depth
            first = start - streamed * depth
            stop = tl.minimum(depth, first + end - start)
            distance, tile_number, row, column, inner, tall = place_of(ctx, group + streamed, M, N, KIND, BM, BN, GROUP)
            tile = product_and_parcel(
                ctx, left, right, row, column, first, stop, M, N, K, a_pitch, b_pitch, source, dest, height, width,
                pitch, to, fan, 0, BM // SLAB, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, PRECISION, SLAB, FAN,
                EDGES,
            )  # fmt: skip
            set_mark(ctx, marks, mark, to, number, KIND)
            mark, fan = 0, 0
            if add_part(
                ctx, tile, room, tallies + (group - whole + streamed), program, sharing, streamed, depth,
                iterations, BM, BN,
            ):  # fmt: skip
                met = meet(ctx, words, marks, number, distance, tile_number, tiles, met, KIND)
                for down in range(0, BM, BM // STRIPS):
                    part = sum_of_parts(room, streamed, depth, sharing, iterations, down, BM, BN)
                    _, _, to, _ = settle(
                        ctx, part, number, corner, parts, slots, distance, row + down, column, inner + down,
                        tall - down, N - column, M, above, before, pitch, True, scale_a, scale_b, KIND, BM // STRIPS,
                        BN, FAN, EDGES, VECTOR, EPILOGUE, EACH,
                    )  # fmt: skip
                set_mark(ctx, marks, mark_of(ctx, distance, tile_number, tiles, KIND), to, number, KIND)
            start += stop - first
    if fan > 0:  # a program without a streamed part
        send_parcel(ctx, source, dest, height, width, pitch, to, fan, BM, BN, SLAB, FAN, EDGES)
        set_mark(ctx, marks, mark, to, number, KIND)


@triton.jit
def send_parcel(
    ctx, source, dest, height, width, pitch, to, fan,
    BM: tl.constexpr, BN: tl.constexpr, SLAB: tl.constexpr, FAN: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Send a parcel with no product beside it."""
    r, c = slab_indices(SLAB, BN, False)
    inside = r * pitch + c
    none = tl.zeros((SLAB, BN), dtype=source.dtype.element_ty)
    for i in range(BM // SLAB):
        slab = load_slab(source, none, inside, r, c, i * SLAB, height, width, pitch, True, EDGES)
        store_slab(ctx, dest, slab, inside, r, c, i * SLAB, height, width, pitch, to, fan, True, FAN, EDGES)


@triton.jit
def place_of(ctx, index, M, N, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Return (distance of its owner, number, row, column, row within the owner's rows, height) of a tile.

    The height may be 0 or less: such a tile is empty.
    """
    columns = tl.cdiv(N, BN)
    if adds(KIND):
        n = dev.n_pes(ctx)
        high = tl.cdiv(tl.cdiv(M, n), BM)
        distance, number = distance_and_number(index, high * columns, n, tl.num_programs(0))
        owner = (dev.my_pe(ctx) + distance) % n
        i, j = tile_at(number, high, columns, GROUP)
        return distance, number, share_start(M, owner, n) + i * BM, j * BN, i * BM, share_size(M, owner, n) - i * BM
    else:
        i, j = tile_at(index, tl.cdiv(M, BM), columns, GROUP)
        return 0, index, i * BM, j * BN, i * BM, M - i * BM


@triton.jit
def mark_of(ctx, distance, number, tiles, KIND: tl.constexpr):
    """Return the index of the mark of a peer's tile, which its owner waits for; 0 for an own tile, which has none."""
    if adds(KIND):
        n = dev.n_pes(ctx)
        return tl.where(distance > 0, 1 + (n - 1 - distance) * (tiles // n) + number, 0)
    else:
        return 0


@triton.jit
def set_mark(ctx, marks, mark, to, number, KIND: tl.constexpr):
    """Tell the owner of a part that it has come, if ``mark`` is one."""
    if adds(KIND):
        if mark > 0:
            dev.signal_set(ctx, marks + mark, number, to)


@triton.jit
def meet(ctx, words, marks, number, distance, tile_number, tiles, met, KIND: tl.constexpr):
    """Wait for what an own tile needs: the parts of peers, and, once, their leave to write. Return whether that is done."""
    if adds(KIND):
        n = dev.n_pes(ctx)
        for i in range(tl.where(distance == 0, n - 1, 0)):
            dev.signal_wait_until(ctx, marks + 1 + i * (tiles // n) + tile_number, dev.CMP_GE, number)
    if shows(KIND):
        if (met == 0) & (distance == 0):
            rounds.await_arrivals(ctx, words, number)
            met = 1
    return met


@triton.jit
def settle(
    ctx, tile, number, corner, parts, slots, distance, row, column, inner, tall, wide, M, above, before, pitch, last,
    scale_a, scale_b,
    KIND: tl.constexpr, HIGH: tl.constexpr, BN: tl.constexpr, FAN: tl.constexpr, EDGES: tl.constexpr,
    VECTOR: tl.constexpr, EPILOGUE: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Store HIGH rows of a finished tile here, and, if it is the last, on its other PEs too.

    Return (source, dest, to, fan) of its parcel; fan is 0 if it has been sent.
    """
    n, me = dev.n_pes(ctx), dev.my_pe(ctx)
    tile = scaled(tile, scale_a, scale_b, row, column, tall, wide, HIGH, BN, EACH)
    r, c = tl.arange(0, HIGH)[:, None], tl.arange(0, BN)[None, :]
    inside = r * pitch + c
    mask = (r < tall) & (c < wide) if EDGES else (r >= 0) & (c >= 0)
    to, fan = me + 1, 0
    first = corner + tl.cast(row, tl.int64) * pitch + column
    source, dest = first, first
    if KIND == SCATTER:
        source = corner + tl.cast(inner, tl.int64) * pitch + column
    if shows(KIND):
        fan = FAN
    if adds(KIND):
        space = tl.cast(tl.cdiv(M, n), tl.int64) * pitch  # of a slot
        turn = tl.cast(number % 2, tl.int64) * (n - 1)
        within = tl.cast(inner, tl.int64) * pitch + column
        if distance == 0:
            for i in range(n - 1):
                tile += tl.load(slots + (turn + i) * space + within + inside, mask=mask, other=0.0).to(tl.float32)
        else:
            source = parts + tl.cast(row, tl.int64) * pitch + column
            dest = slots + (turn + n - 1 - distance) * space + within
            to, fan = me + distance, 1
    if EPILOGUE is not None:
        if distance == 0:
            tile = EPILOGUE(tile, above + row + r, before * VECTOR + column + c)
    out = tile.to(corner.dtype.element_ty)
    tl.store(source + inside, out, mask=mask)
    if FAN > 0:
        if last:
            for i in tl.static_range(FAN):
                dev.store(ctx, dest + inside, out, (to + i) % n, mask & (i < fan))
            fan = 0
    return source, dest, to % n, fan


KINDS = {
    ("gemm_all_gather", "rows"): ROWS,
    ("gemm_all_gather", "columns"): COLUMNS,
    ("gemm_reduce_scatter", "rows"): SCATTER,
    ("gemm_all_reduce", "rows"): REDUCE,
}


class MultiplyAndSend:
    """The kernel of a plan with its memory."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        kind = KINDS[problem.operator, problem.split].value
        n, item = problem.n_pes, problem.dtype
        own = -(-problem.M // n)  # rows of a slot
        adding = adds(kind)
        product = Product(problem, problem.options.order, problem.m, problem.a, adding)
        self.space = workspace_of(
            problem,
            words=((rounds.words_of(n),), torch.uint64),
            tallies=((product.most_streamed,), torch.uint64),
            marks=((1 + product.tiles // n * (n - 1) if adding else 1,), torch.uint64),
            slots=((2 * (n - 1), own, problem.N) if adding else (0,), item),
        )
        parts = torch.empty((problem.M, problem.N) if adding else (0,), dtype=item, device=a.device)
        places = (*(self.space[name] for name in ("words", "tallies")), parts, self.space["slots"], self.space["marks"])
        sample = self.space["result 0"] if problem.symmetric else a.new_empty(problem.result, dtype=item)
        self.kernel = product.prepare(kind, places, a, b, sample, problem.corner)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)


def steps(problem: Problem, a: torch.Tensor, b: torch.Tensor) -> MultiplyAndSend | few_rows.MultiplyAndExchange:
    """Return the steps of a plan."""
    return (few_rows.MultiplyAndExchange if few_rows.suits(problem) else MultiplyAndSend)(problem, a, b)


class MultiplyAndSendRows:
    """all_gather_gemm: the K loops of the tiles of own rows send these rows."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.gathering = Gathering(problem, a.contiguous(), b, sends=True)
        self.space = self.gathering.space

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.gathering(a.contiguous(), b, out, *scales)


STEPS = dict.fromkeys(KINDS, steps) | {("all_gather_gemm", "rows"): MultiplyAndSendRows}
