"""Two parties at the same time: one makes what the other waits for, by flags of tiles or chunks.

workgroup_specialized: one kernel with programs of two kinds: most multiply, a few send the tiles that are done.
producer_consumer: two kernels on two streams, or the copy engine, which brings rows, and the kernel that multiplies them.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.device.arch import decoded
from pyshmem.device.arch.fields import encoded, encoded_each
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.kernels.compiled import like
from pyshmem.ops import protocol
from pyshmem.ops.copies import Flags, peers_of, put
from pyshmem.ops.gemm.fused import Gathering
from pyshmem.ops.gemm.orders import tile_at
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import NONE, gathered_scales, parameters, samples, scaled
from pyshmem.ops.gemm.steps import Steps, rows_of, scales_of_pes, workspace_of
from pyshmem.ops.gemm.tile import Form, operands, product, shape_of, sizes_of
from pyshmem.ops.shares import start_of
from pyshmem.ops.streams import Side
from pyshmem.ops.workspace import Workspace

SENDERS = 12  # of the programs; fewer cannot fill the link, more take too many from the product


class Memory(NamedTuple):
    """The symmetric words of a plan: those of rounds, and the flags of tiles."""

    words: Any
    flags: Any


class Programs(NamedTuple):
    """How many programs multiply, and how many send. base: the first program of this grid; kernels get it encoded."""

    computing: Any
    sending: Any
    base: Any


class Corner(NamedTuple):
    """above, before: as in tile.Schedule. Kernels get encoded numbers."""

    above: Any
    before: Any


@triton.jit
def multiply_or_send(
    ctx, memory, counts, shape, corner, a, b, c, scale_a, scale_b, FORM: tl.constexpr, EPILOGUE: tl.constexpr
):
    """The first ``counts.computing`` programs multiply, the others send. This grid is that of the programs from base on."""
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    FAN: tl.constexpr = FORM.FAN
    shape = sizes_of(shape)
    M, N, above, before = shape.M, shape.N, decoded(corner.above), decoded(corner.before) * FORM.VECTOR
    program = decoded(counts.base) + tl.program_id(0)
    epoch = protocol.enter(ctx, memory.words)
    high, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    result = c + tl.cast(above, tl.int64) * shape.pitch + before
    r, q = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    if program == 0:
        protocol.arrive(ctx, memory.words, epoch)
    if program < counts.computing:
        ops = operands(a, b, shape, FORM)
        for index in range(program, high * columns, counts.computing):
            i, j = tile_at(index, high, columns, FORM.GROUP)
            tile = product(ctx, ops, i * BM, j * BN, 0, tl.cdiv(shape.K, FORM.BK), FORM.A_ALONG, FORM)
            tile = scaled(tile, scale_a, scale_b, i * BM, j * BN, M - i * BM, N - j * BN, BM, BN, FORM.EACH)
            if EPILOGUE is not None:
                tile = EPILOGUE(tile, above + i * BM + r, before + j * BN + q)
            places, mask = places_of(result, shape, i * BM, j * BN, r, q, FORM)
            tl.store(places, tile.to(c.dtype.element_ty), mask=mask)
            dev.signal_set(ctx, memory.flags + index, epoch, dev.my_pe(ctx))
    else:
        protocol.await_arrivals(ctx, memory.words, epoch)
        for index in range(program - counts.computing, high * columns, counts.sending):
            i, j = tile_at(index, high, columns, FORM.GROUP)
            dev.signal_wait_until(ctx, memory.flags + index, dev.CMP_GE, epoch)
            places, mask = places_of(result, shape, i * BM, j * BN, r, q, FORM)
            tile = tl.load(places, mask=mask)
            for k in tl.static_range(1, FAN + 1):
                dev.store(ctx, places, tile, (dev.my_pe(ctx) + k) % dev.n_pes(ctx), mask)
    protocol.leave(ctx, memory.words, epoch, counts.computing + counts.sending, True)


@triton.jit
def places_of(result, shape, row, column, r, q, FORM: tl.constexpr):
    """Return the pointers to the elements of a tile, and which of them are within the product."""
    mask = (row + r < shape.M) & (column + q < shape.N) if FORM.EDGES else (r >= 0) & (q >= 0)
    return result + tl.cast(row, tl.int64) * shape.pitch + column + r * shape.pitch + q, mask


class Specialized(Steps):
    """The kernel for gemm_all_gather, with its memory. ``kernels_of`` returns it on grids of some of its programs."""

    @classmethod
    def serves(cls, problem: Problem) -> bool:
        """All sizes of a product are numbers for its kernel."""
        return True

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        product = self.product = Product(problem, "data_parallel", problem.m, problem.a, False)
        sending = min(SENDERS, max(product.programs // 4, 1))
        self.counts = Programs(max(product.programs - sending, 1), sending, 0)
        self.space = workspace_of(
            problem,
            space,
            words=((protocol.words_of(problem.n_pes),), torch.uint64),
            flags=((product.most_tiles,), torch.uint64),
        )
        result, memory = self.space["result 0"], Memory(*(self.space[name] for name in Memory._fields))
        pitches = self.pitches = problem.a.pitch, problem.b.pitch, max(result.stride(0), 1)
        operands, counts = like((a, b, result, *samples(problem.scaling, a))), self.counts

        def prepared(form: Form, base: int, programs: int) -> Prepared:
            return Prepared(
                multiply_or_send, programs,
                (
                    shmem.device_context(problem.team), memory, counts._replace(base=encoded(base)),
                    shape_of(problem.m, problem.n, problem.k, *pitches), Corner(*encoded_each(0, 0)),
                ),
                operands,
                parameters(problem.scaling) | {"FORM": form, "EPILOGUE": problem.options.epilogue},
                **product.row.compiled,
            )  # fmt: skip

        self.prepare = cache(prepared)
        self.cut(problem, a, b)

    def kernels_of(self, problem: Problem, *grids: tuple[int, int]) -> list[Prepared]:
        """Return the kernel on each grid, to be called with a, b, the result and the scales. grids: (base, programs)."""
        above, before = problem.corner
        form = self.product.of(problem, problem.m).form(problem.n_pes - 1, before)
        shape = shape_of(problem.m, problem.n, problem.k, *self.pitches)
        corner = Corner(*encoded_each(above, before // form.VECTOR))
        return [self.prepare(form, *grid).with_numbers(shape, corner) for grid in grids]


class MultiplyOrSend(Specialized):
    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        (self.kernel,) = self.kernels_of(problem, (0, sum(self.counts)))

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)


WORKGROUPS = {("gemm_all_gather", split): MultiplyOrSend for split in ("rows", "columns")}


class MultiplyThenSend(Specialized):
    """One kernel makes tiles and sets their flags; another one, on a side stream and on other SMs, sends them."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.side = Side()
        super().__init__(problem, a, b, space)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        computing, sending = self.counts.computing, self.counts.sending
        self.producer, self.consumer = self.kernels_of(problem, (0, computing), (computing, sending))

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        begun = self.side.after()
        self.producer(a, b, out, *scales)
        with begun:
            self.consumer(a, b, out, *scales)
        self.side.join()


class CopyThenMultiply(Steps):
    """The copy engine brings the rows of all PEs, a flag behind each chunk; one kernel multiplies them as they come."""

    @classmethod
    def serves(cls, problem: Problem) -> bool:
        """As its kernel."""
        return Gathering.serves(problem)

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.team = problem.team
        self.gathering = gathering = Gathering(problem, a, b, space, sends=False)
        self.space, self.chunks = gathering.space, gathering.chunks
        stamp = gathering.words.view(torch.int64)[protocol.STAMP.value]
        stamp.clamp_(min=1)  # calls of a plan with the same memory may have come before
        self.flags = Flags(problem.team, gathering.words, gathering.flags[:, :, None])
        self.sides = [(pe, Side(), Side()) for pe in reversed(peers_of(problem.team))]
        self.cut(problem, a, b)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.multiply = self.gathering.resized(problem, a, b)
        self.gathered = self.space["gathered"]
        if problem.scaling != NONE:
            there = self.space.room.array("scales", *gathered_scales(problem)["scales"])  # as the kernel finds them
            self.scales = scales_of_pes(problem, there)[problem.me]
        first, last = rows_of(problem, problem.me)
        cuts = itertools.pairwise(start_of(last - first, chunk, self.chunks) for chunk in range(self.chunks + 1))
        self.cuts = [(i, j, self.gathered[first + i : first + j]) for i, j in cuts]  # of the rows of this PE

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        """The last call has ended on all PEs: its kernels meet. So gathered may be written at once."""
        rows = a if a.is_contiguous() else a.contiguous()
        for pe, side, behind in self.sides:
            with side.after():
                if scales:
                    put(self.team, self.scales, scales[0], pe)
                for chunk, (i, j, target) in enumerate(self.cuts):
                    put(self.team, target, rows[i:j], pe)
                    with behind.after():  # beside the next chunk: a copy takes 4 us to start
                        self.flags.tell(pe, chunk)
        self.multiply(a, b, out, *scales)
        for _, side, behind in self.sides:
            side.join()
            behind.join()


PRODUCERS = {
    ("gemm_all_gather", "rows"): MultiplyThenSend,
    ("gemm_all_gather", "columns"): MultiplyThenSend,
    ("all_gather_gemm", "rows"): CopyThenMultiply,
}
