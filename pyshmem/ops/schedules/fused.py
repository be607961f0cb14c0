"""One kernel. Each program sends its previous tile in slabs from the K loop of the next one; the last goes from registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.ops import rounds
from pyshmem.ops.multiplying import Product
from pyshmem.ops.orders.chiplets import renumbered
from pyshmem.ops.orders.grouped import tile_at
from pyshmem.ops.orders.streamed import first_iteration, partial_sums, program_of
from pyshmem.ops.problem import Problem
from pyshmem.ops.products import operand, product_and_parcel
from pyshmem.ops.shares import share_size, share_start, start_of
from pyshmem.ops.workspace import Workspace

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


@triton.jit(do_not_specialize=["above", "before"])
def multiply_and_send(
    ctx, words, sums, tallies, parts, slots, M, N, K, a_pitch, b_pitch, pitch, above, before, whole, tiles, a, b, c,
    KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr,
    B_ALONG: tl.constexpr, DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr,
    SLAB: tl.constexpr, FAN: tl.constexpr, GROUP: tl.constexpr, CHIPLETS: tl.constexpr, STREAMED: tl.constexpr,
    VECTOR: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Multiply a (M, K) by b (K, N) and send the tiles as KIND says.

    words, sums, tallies, parts, slots: the plan's memory.  above, before: the rows and columns of c in front of the product.
    whole: as many of the ``tiles`` are not streamed.  FAN: the most PEs that a tile is sent to.
    before: in units of VECTOR elements, so that the compiler knows that addresses are multiples of them.
    """
    programs = tl.num_programs(0)
    program = renumbered(tl.program_id(0), programs, CHIPLETS)
    number = tl.cast(1, tl.uint64)
    if KIND != ALONE:
        number = rounds.enter(ctx, words)
    if shows(KIND):
        if tl.program_id(0) == programs - 1:  # it has the fewest tiles
            rounds.arrive(ctx, words, number)
    corner = c
    if (KIND == ROWS) | (KIND == COLUMNS):
        corner += tl.cast(above, tl.int64) * pitch + before * VECTOR
    left = operand(a, M, K, a_pitch, BM, BK, A_ALONG, DESCRIBED)
    right = operand(b, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED)
    depth = tl.cdiv(K, BK)
    announced = 0  # whether this program has announced its parts, and waited for those of others
    source, dest, to, fan, height, width = corner, corner, 0, 0, 0, 0
    for index in range(program, whole, programs):
        owner, row, column, inner, tall, wide = place_of(ctx, index, M, N, KIND, BM, BN, GROUP)
        tile = product_and_parcel(
            ctx, left, right, row, column, 0, depth, M, N, K, a_pitch, b_pitch, source, dest, height, width, pitch, to,
            fan, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, PRECISION, SLAB, FAN, EDGES,
        )  # fmt: skip
        announced = meet(ctx, words, number, owner, announced, KIND)
        last = (not STREAMED) & (index + programs >= whole)
        source, dest, to, fan = settle(
            ctx, tile, number, corner, parts, slots, owner, row, column, inner, tall, wide, M, above, before, pitch, last,
            KIND, BM, BN, FAN, EDGES, VECTOR, EPILOGUE,
        )  # fmt: skip
        height, width = tall, wide
        tl.debug_barrier()  # other threads load the parcel
    if STREAMED:
        iterations = (tiles - whole) * depth
        sharing = tl.minimum(programs, iterations)
        start = first_iteration(tl.minimum(program, sharing), sharing, iterations)
        end = first_iteration(tl.minimum(program + 1, sharing), sharing, iterations)
        while start < end:
            streamed = start // depth
            first = start - streamed * depth
            stop = min(depth, first + end - start)
            owner, row, column, inner, tall, wide = place_of(ctx, whole + streamed, M, N, KIND, BM, BN, GROUP)
            tile = product_and_parcel(
                ctx, left, right, row, column, first, stop, M, N, K, a_pitch, b_pitch, source, dest, height, width,
                pitch, to, fan, BM, BN, BK, A_ALONG, B_ALONG, DESCRIBED, WHOLE, PRECISION, SLAB, FAN, EDGES,
            )  # fmt: skip
            fan = 0
            announced = meet(ctx, words, number, owner, announced, KIND)
            ours, tile = complete(
                ctx, tile, sums, tallies, program, sharing, streamed, depth, iterations, stop - first, BM, BN
            )
            if ours:
                settle(
                    ctx, tile, number, corner, parts, slots, owner, row, column, inner, tall, wide, M, above, before, pitch, True,
                    KIND, BM, BN, FAN, EDGES, VECTOR, EPILOGUE,
                )  # fmt: skip
            start += stop - first
    if adds(KIND) & (announced == 0):
        rounds.announce(ctx, words)
    if KIND != ALONE:
        rounds.leave(ctx, words, number, shows(KIND))


@triton.jit
def place_of(ctx, index, M, N, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Return (owner, row, column, row within the owner's rows, height, width) of a tile, in elements.

    Tiles that are added up come by owner, those of this PE last. The height may be 0 or less: such a tile is empty.
    """
    columns = tl.cdiv(N, BN)
    if adds(KIND):
        n, me = dev.n_pes(ctx), dev.my_pe(ctx)
        high = tl.cdiv(tl.cdiv(M, n), BM)
        owner = (me + 1 + index // (high * columns)) % n
        i, j = tile_at(index % (high * columns), high, columns, GROUP)
        return (
            owner, share_start(M, owner, n) + i * BM, j * BN, i * BM, share_size(M, owner, n) - i * BM, N - j * BN
        )  # fmt: skip
    else:
        i, j = tile_at(index, tl.cdiv(M, BM), columns, GROUP)
        return dev.my_pe(ctx), i * BM, j * BN, i * BM, M - i * BM, N - j * BN


@triton.jit
def meet(ctx, words, number, owner, announced, KIND: tl.constexpr):
    """Wait, once, for what the first own tile needs: parts of peers, and their leave to write. Return whether it has."""
    if KIND != ALONE:
        if (announced == 0) & (owner == dev.my_pe(ctx)):
            if adds(KIND):
                rounds.announce(ctx, words)
                rounds.await_parts(ctx, words, number, tl.num_programs(0))
            if shows(KIND):
                rounds.await_arrivals(ctx, words, number)
            announced = 1
    return announced


@triton.jit
def settle(
    ctx, tile, number, corner, parts, slots, owner, row, column, inner, tall, wide, M, above, before, pitch, last,
    KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FAN: tl.constexpr, EDGES: tl.constexpr,
    VECTOR: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Store a finished tile here, and on its other PEs too if it is the last. Return (source, dest, to, fan) of its parcel."""
    n, me = dev.n_pes(ctx), dev.my_pe(ctx)
    r, c = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
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
        if owner == me:
            for i in range(1, n):
                slot = slots + (turn + i - 1) * space + within
                tile += tl.load(slot + inside, mask=mask, other=0.0).to(tl.float32)
        else:
            source = parts + tl.cast(row, tl.int64) * pitch + column
            dest = slots + (turn + (me - owner - 1 + n) % n) * space + within
            to, fan = owner, 1
    if EPILOGUE is not None:
        if owner == me:
            tile = EPILOGUE(tile, above + row + r, before * VECTOR + column + c)
    out = tile.to(corner.dtype.element_ty)
    tl.store(source + inside, out, mask=mask)
    if FAN > 0:
        if last:
            for i in tl.static_range(FAN):
                dev.store(ctx, dest + inside, out, (to + i) % n, mask & (i < fan))
            fan = 0
    return source, dest, to, fan


@triton.jit
def complete(
    ctx, tile, sums, tallies, program, sharing, streamed, depth, iterations, length, BM: tl.constexpr, BN: tl.constexpr
):
    """Return (whether this program has the whole sum of a streamed tile, the sum).

    A program that has a part of it stores the part; the one that comes last adds all parts.
    """
    inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    ours = length == depth
    if not ours:
        tl.store(partial_sums(sums, program, streamed, depth, sharing, iterations, BM, BN) + inside, tile)
        dev.fence(ctx)
        first = program_of(streamed * depth, sharing, iterations)
        last = program_of(streamed * depth + depth - 1, sharing, iterations)
        before = dev.atomic_fetch_add(ctx, tallies + streamed, 1, dev.my_pe(ctx))
        ours = before == last - first
        if ours:
            tl.store(tallies + streamed, 0)
            tile = tl.zeros((BM, BN), dtype=tl.float32)
            for other in range(first, last + 1):
                there = partial_sums(sums, other, streamed, depth, sharing, iterations, BM, BN)
                tile += tl.load(there + inside)
    return ours, tile


_KINDS = {"gemm_reduce_scatter": SCATTER, "gemm_all_reduce": REDUCE}


class Runner:
    """The kernel of a plan with its memory."""

    def __init__(self, problem: Problem, order: str, a: torch.Tensor, b: torch.Tensor) -> None:
        kind = _KINDS.get(problem.operator, ROWS if problem.split == "rows" else COLUMNS)
        self.symmetric = kind.value != SCATTER.value
        n, item = problem.n_pes, problem.dtype
        own = -(-problem.M // n)  # rows of a slot
        adding = kind.value >= SCATTER.value
        shape = problem.result if self.symmetric else (0,)
        product = Product(problem, order, problem.m, problem.a, adding)
        self.space = Workspace(
            problem,
            {
                "words": ((rounds.words_of(n),), torch.uint64),
                "tallies": ((product.tiles - product.whole,), torch.uint64),
                "slots": ((2 * (n - 1), own, problem.N) if adding else (0,), item),
                "result 0": (shape, item),
                "result 1": (shape, item),
            },
        )
        self.results = (self.space["result 0"], self.space["result 1"])
        parts = torch.empty((problem.M, problem.N) if adding else (0,), dtype=item, device=a.device)
        places = (self.space["words"], self.space["tallies"], parts, self.space["slots"])
        above = start_of(problem.M, problem.me, n) if kind.value == ROWS.value else 0
        before = start_of(problem.N, problem.me, n) if kind.value == COLUMNS.value else 0
        self.kernel = product.prepare(kind.value, places, a, b, self._sample(problem), (above, before))

    def _sample(self, problem: Problem) -> torch.Tensor:
        return self.results[0] if self.symmetric else self.results[0].new_empty(problem.result)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        self.kernel(a, b, out)

    def close(self) -> None:
        self.space.close()
