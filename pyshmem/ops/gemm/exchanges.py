"""The sum of parts, and kernels that move blocks between PEs and let these meet, as schedules of the host need them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.ops import protocol
from pyshmem.ops.aligned import ByPlaces
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.machine import machine
from pyshmem.ops.shares import share_size, share_start


@triton.jit(do_not_specialize=["rows", "tall", "count", "first"])
def add_parts(
    rows, columns, tall, count, first, slots, parts, out, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Add ``count`` slots of ``tall`` rows to ``parts``, in float32, and store the sums to ``out``."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    mask = (r < rows) & (c < columns)
    inside = tl.cast(r, tl.int64) * columns + c
    total = tl.load(parts + inside, mask=mask, other=0.0).to(tl.float32)
    for i in range(count):
        total += tl.load(slots + tl.cast(i, tl.int64) * tall * columns + inside, mask=mask, other=0.0).to(tl.float32)
    if EPILOGUE is not None:
        total = EPILOGUE(total, first + r, c)
    tl.store(out + inside, total.to(out.dtype.element_ty), mask=mask)


class Sum:
    """The sum of a part and of the slots beside it, with the epilogue, of any number of rows."""

    def __init__(self, problem: Problem) -> None:
        self._columns, self._block = problem.N, 4
        self._width = min(triton.next_power_of_2(max(problem.N, 1)), 1024)
        constants = {"BLOCK": self._block, "WIDTH": self._width, "EPILOGUE": problem.options.epilogue}
        self._kernels = ByPlaces(
            lambda slots, part: Prepared(
                add_parts, 1, (1, problem.N, 1, 1, 0), (slots, part, part), constants, num_warps=4
            )
        )

    def of(
        self, slots: torch.Tensor, tall: int, part: torch.Tensor, first: int
    ) -> Callable[[torch.Tensor, torch.Tensor], None]:
        """Return the sum of arrays like ``part``. slots: of ``tall`` rows each.  first: the row of the result's first."""
        rows, width = part.shape[0], self._width
        grid = (max(-(-rows // self._block), 1), max(-(-self._columns // width), 1), 1)
        kernel = self._kernels.of(slots, part)
        return partial(kernel.with_numbers(rows, self._columns, tall, slots.shape[0], first, grid=grid), slots)


@triton.jit(do_not_specialize=["count"])
def send_and_meet(
    ctx, words, count, source, target, BLOCK: tl.constexpr, VECTOR: tl.constexpr, FAN: tl.constexpr,
    FIRST: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """Copy ``count`` elements, a multiple of VECTOR, to ``target`` on FAN peers, and wait until all PEs have done so.

    FIRST: PEs meet before they copy, too, as what they write may still be read.  OWN: copy to this PE as well.
    """
    number, count = protocol.enter(ctx, words), count // VECTOR * VECTOR  # the compiler sees that it is a multiple
    if FIRST:
        meet(ctx, words, number)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        lane = start + tl.arange(0, BLOCK)
        values = tl.load(source + lane, mask=lane < count)
        if OWN:
            tl.store(target + lane, values, mask=lane < count)
        for i in tl.static_range(1, FAN + 1):
            dev.store(ctx, target + lane, values, (dev.my_pe(ctx) + i) % dev.n_pes(ctx), lane < count)
    protocol.leave(ctx, words, number, tl.num_programs(0), True)


@triton.jit(do_not_specialize=["M"])
def scatter_and_meet(ctx, words, M, N, slots, parts, BLOCK: tl.constexpr, FAN: tl.constexpr):
    """Copy the rows of each peer in ``parts`` (M, N) to this PE's slot there; PEs meet before and after."""
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    number = protocol.enter(ctx, words)
    meet(ctx, words, number)
    for i in tl.static_range(1, FAN + 1):
        pe = (me + i) % n
        source = parts + tl.cast(share_start(M, pe, n), tl.int64) * N
        target = slots + tl.cast(tl.cdiv(M, n), tl.int64) * (n - 1 - i) * N
        count = tl.cast(share_size(M, pe, n), tl.int64) * N
        for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
            lane = start + tl.arange(0, BLOCK)
            values = tl.load(source + lane, mask=lane < count)
            dev.store(ctx, target + lane, values, pe, lane < count)
    protocol.leave(ctx, words, number, tl.num_programs(0), True)


@triton.jit
def meet(ctx, words, number):
    """Wait until all PEs have reached this kernel."""
    if tl.program_id(0) == 0:
        protocol.arrive(ctx, words, number)
    protocol.await_arrivals(ctx, words, number)


def sender(problem: Problem, words: torch.Tensor, columns: int, first: bool = False, own: bool = False) -> ByPlaces:
    """Return send_and_meet, by ``of(source, target)``, to be called with arrays like these, as many elements as of target.

    columns: of the arrays.  first, own: FIRST and OWN. On return of the kernel, all PEs have what all have sent before.
    """

    def prepare(source: torch.Tensor, target: torch.Tensor) -> Prepared:
        programs, block = _grid(target.numel(), target.itemsize)
        vector = math.gcd(columns, 16 // target.itemsize)
        constants = {"BLOCK": block, "VECTOR": vector, "FAN": problem.n_pes - 1, "FIRST": first, "OWN": own}
        fixed = context, words, target.numel()
        return Prepared(send_and_meet, programs, fixed, (source, target), constants, num_warps=8)

    context = shmem.device_context(problem.team)
    return ByPlaces(prepare)


def scatterer(problem: Problem, words: torch.Tensor, slots: torch.Tensor, parts: torch.Tensor) -> Prepared:
    """Return scatter_and_meet with the numbers M and N, to be called with a plan's slots and its parts."""
    fixed = (shmem.device_context(problem.team), words, problem.M, problem.N)
    programs, block = _grid(slots[0].numel() if slots.shape[0] else 0, slots.itemsize)
    constants = {"BLOCK": block, "FAN": problem.n_pes - 1}
    return Prepared(scatter_and_meet, programs, fixed, (slots, parts), constants, num_warps=8)


def _grid(count: int, itemsize: int) -> tuple[int, int]:
    """Return how many programs copy ``count`` elements, and how many of them one copies at once."""
    threads = 8 * 32 if machine().arch != "interpreter" else 4
    block = threads * 4 * (16 // itemsize)
    return max(min(machine().programs, -(-count // block)), 1), block
