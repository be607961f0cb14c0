"""gemm_all_reduce of few rows, as in the decode steps of a language model, in one kernel and one exchange.

Reading b takes nearly all of the time. Each program has the only tile of its columns; it pushes its part to the slots of all
peers, waits for theirs, and adds all parts. A larger product would send too much that way: a part goes to all PEs whole.
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
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.product import Configuration, described, precision
from pyshmem.ops.gemm.scaling import LINES, parameters, samples, scaled
from pyshmem.ops.gemm.steps import Steps, workspace_of
from pyshmem.ops.gemm.tile import Form, operands, product, shape_of, sizes_of
from pyshmem.ops.machine import Machine, machine
from pyshmem.ops.workspace import Workspace

MOST_ROWS = 64
MOST_PES = 8
LEAST_ROWS = 2  # below, the library has kernels for vectors
LEAST_COLUMNS = 24  # for each program: with fewer, the library's product does better, because it cuts K
WIDTHS = (128, 64, 32, 16)
# (architecture, bytes of an element): BK, warps, stages
_ROWS = {
    ("interpreter", 1): (32, 4, 1),
    ("interpreter", 2): (32, 4, 1),
    ("interpreter", 4): (32, 4, 1),
    ("nvidia", 1): (256, 4, 5),
    ("nvidia", 2): (128, 4, 5),
    ("nvidia", 4): (32, 4, 6),
    ("gfx90a", 2): (64, 4, 2),
    ("gfx90a", 4): (32, 4, 2),
    ("gfx942", 1): (128, 4, 2),
    ("gfx942", 2): (64, 4, 2),
    ("gfx942", 4): (32, 4, 2),
    ("gfx950", 1): (256, 4, 2),
    ("gfx950", 2): (128, 4, 2),
    ("gfx950", 4): (64, 4, 2),
}


class Memory(NamedTuple):
    """words: the epoch of each program.  slots: (2, n_pes, tiles, BM, BN).  flags: (n_pes, tiles), the epochs of parts."""

    words: Any
    slots: Any
    flags: Any


@triton.jit(do_not_specialize=["tiles"])
def multiply_and_exchange(
    ctx, memory, shape, tiles, a, b, c, scale_a, scale_b, FORM: tl.constexpr, EPILOGUE: tl.constexpr
):
    """c (M, N) = the sum over all PEs of a (M, K) @ b (K, N), for M up to BM.

    Two sets of slots are enough: a peer that writes to a slot has had this PE's part of the call before, and the program
    that sent it had read the slot by then.
    """
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    shape, program, programs = sizes_of(shape), tl.program_id(0), tl.num_programs(0)
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    M, N, slots = shape.M, shape.N, memory.slots
    epoch = tl.load(memory.words + program) + 1
    ops = operands(a, b, shape, FORM)
    r, q = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    inside, mask = r * BN + q, (r < M) & (q >= 0)
    for index in range(program, tiles, programs):
        tile = product(ctx, ops, 0, index * BN, 0, tl.cdiv(shape.K, FORM.BK), FORM.A_ALONG, FORM)
        tile = scaled(tile, scale_a, scale_b, 0, index * BN, M, N - index * BN, BM, BN, FORM.EACH)
        part = tile.to(c.dtype.element_ty)
        first = tl.cast(epoch % 2, tl.int64) * n  # of this call's slots
        place = slots + ((first + me) * tiles + index) * (BM * BN) + inside
        for i in range(1, n):
            dev.store(ctx, place, part, (me + i) % n, mask)
        for i in range(1, n):
            dev.signal_set(ctx, memory.flags + me * tiles + index, epoch, (me + i) % n)
        for i in range(1, n):
            dev.signal_wait_until(ctx, memory.flags + (me + i) % n * tiles + index, dev.CMP_GE, epoch)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for pe in range(n):  # the same order on all PEs, of parts that are rounded alike: equal bits
            theirs = slots + ((first + pe) * tiles + index) * (BM * BN) + inside
            came = tl.load(theirs, mask=mask & (pe != me), other=0.0)
            total += tl.where(pe == me, part, came).to(tl.float32)
        if EPILOGUE is not None:
            total = EPILOGUE(total, r, index * BN + q)
        tl.store(c + r * shape.pitch + index * BN + q, total.to(c.dtype.element_ty), mask=mask & (index * BN + q < N))
    tl.store(memory.words + program, epoch)


def suits(problem: Problem) -> bool:
    """Whether a product has few enough rows and PEs, and the caller has chosen neither tiles nor a streamed order."""
    if problem.operator != "gemm_all_reduce" or not 0 < problem.M <= MOST_ROWS:
        return False
    free = problem.options.tile is None and problem.options.order in ("auto", "data_parallel")
    return free and problem.N > 0 and problem.n_pes <= MOST_PES


def fills(problem: Problem) -> bool:
    """Whether this kernel beats the library's product and a collective: every program has enough columns."""
    return problem.M >= LEAST_ROWS and machine().programs * LEAST_COLUMNS <= problem.N


def configuration(problem: Problem, here: Machine) -> Configuration:
    """Return the tile: all rows, and the width with which the busiest program has the fewest columns."""
    BK, warps, stages = _ROWS[here.arch, problem.a.dtype.itemsize]
    BM = max(triton.next_power_of_2(problem.M), 16)
    width = min(WIDTHS, key=lambda width: -(-problem.N // width // here.programs) * width)
    return Configuration(BM, width, BK, warps, stages)


class MultiplyAndExchange(Steps):
    """The kernel of a plan with its memory."""

    @classmethod
    def serves(cls, problem: Problem) -> bool:
        """Tiles are as high as the power of two of the rows."""
        return True

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        n, here = problem.n_pes, machine()
        row = self.row = configuration(problem, here)
        self.tiles = -(-problem.N // row.BN)
        programs = min(self.tiles, here.programs)
        self.space = workspace_of(
            problem,
            space,
            (row.BM,),  # with it, parts and flags have the same places
            words=((programs,), torch.uint64),
            flags=((n, self.tiles), torch.uint64),
            slots=((2, n, self.tiles, row.BM, row.BN), problem.dtype),
        )
        result = self.space["result 0"]
        memory = Memory(*(self.space[name] for name in Memory._fields))
        self.pitches = problem.a.pitch, problem.b.pitch, max(result.stride(0), 1)
        operands = like((a, b, result, *samples(problem.scaling, a)))

        def prepared(form: Form) -> Prepared:
            return Prepared(
                multiply_and_exchange, programs,
                (
                    shmem.device_context(problem.team), memory,
                    shape_of(problem.M, problem.N, problem.k, *self.pitches), self.tiles,
                ),
                operands,
                parameters(problem.scaling) | {"FORM": form, "EPILOGUE": problem.options.epilogue},
                **row.compiled,
            )  # fmt: skip

        self.kernels = cache(prepared)
        self.cut(problem, a, b)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        row, here = self.row, machine()
        by_descriptor = described(problem, here, problem.a, problem.M)
        cut = problem.M % row.BM or problem.N % row.BN or problem.k % row.BK
        form = Form(
            row.BM, row.BN, row.BK, problem.a.along, problem.b.along, by_descriptor,
            WHOLE=not (cut or by_descriptor), EDGES=True, PRECISION=precision(problem, here), EACH=problem.scaling == LINES,
        )  # fmt: skip
        shape = shape_of(problem.M, problem.N, problem.k, *self.pitches)
        self.kernel = self.kernels(form).with_numbers(shape, self.tiles)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)
