"""A kernel of two kinds of programs: some multiply, the others send the tiles that are done. Flags of tiles connect them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.kernels.launching import Prepared
from pyshmem.ops import rounds
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.orders.grouped import tile_at
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import samples, scaled
from pyshmem.ops.gemm.tile import operand, product

SENDERS = 12  # of the programs; fewer cannot fill the link, more take too many from the product


@triton.jit(do_not_specialize=["base", "above", "before"])
def multiply_or_send(
    ctx, words, flags, M, N, K, a_pitch, b_pitch, pitch, above, before, base, computing, senders, a, b, c, scale_a,
    scale_b,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, EDGES: tl.constexpr, PRECISION: tl.constexpr, FAN: tl.constexpr,
    GROUP: tl.constexpr, VECTOR: tl.constexpr, EPILOGUE: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Programs 0 to computing - 1 multiply, the ``senders`` after them send. This grid is that of the programs from base on.

    above, before, VECTOR: as in fused.multiply_and_send.
    """
    program = base + tl.program_id(0)
    number = rounds.enter(ctx, words)
    high, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    corner = c + tl.cast(above, tl.int64) * pitch + before * VECTOR
    if program == 0:
        rounds.arrive(ctx, words, number)
    if program < computing:
        left = operand(a, M, K, a_pitch, BM, BK, A_ALONG, DESCRIBED)
        right = operand(b, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED)
        for index in range(program, high * columns, computing):
            i, j = tile_at(index, high, columns, GROUP)
            tile = product(
                left, right, i * BM, j * BN, 0, tl.cdiv(K, BK), M, N, K, a_pitch, b_pitch, BM, BN, BK, A_ALONG, B_ALONG,
                DESCRIBED, WHOLE, PRECISION,
            )  # fmt: skip
            tile = scaled(tile, scale_a, scale_b, i * BM, j * BN, M - i * BM, N - j * BN, BM, BN, EACH)
            r, q = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
            if EPILOGUE is not None:
                tile = EPILOGUE(tile, above + i * BM + r, before * VECTOR + j * BN + q)
            mask = (i * BM + r < M) & (j * BN + q < N) if EDGES else (r >= 0) & (q >= 0)
            places = corner + tl.cast(i * BM, tl.int64) * pitch + j * BN + r * pitch + q
            tl.store(places, tile.to(c.dtype.element_ty), mask=mask)
            dev.signal_set(ctx, flags + index, number, dev.my_pe(ctx))
    else:
        rounds.await_arrivals(ctx, words, number)
        for index in range(program - computing, high * columns, senders):
            i, j = tile_at(index, high, columns, GROUP)
            dev.signal_wait_until(ctx, flags + index, dev.CMP_GE, number)
            r, q = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
            mask = (i * BM + r < M) & (j * BN + q < N) if EDGES else (r >= 0) & (q >= 0)
            places = corner + tl.cast(i * BM, tl.int64) * pitch + j * BN + r * pitch + q
            tile = tl.load(places, mask=mask)
            for k in tl.static_range(1, FAN + 1):
                dev.store(ctx, places, tile, (dev.my_pe(ctx) + k) % dev.n_pes(ctx), mask)
    rounds.leave(ctx, words, number, computing + senders, True)


class Parties:
    """The kernel for gemm_all_gather, with its memory. ``prepare`` compiles the grid of some of its programs."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem = problem
        self.product = Product(problem, "data_parallel", problem.m, problem.a, False)
        self.senders = min(SENDERS, max(self.product.programs // 4, 1))
        self.computing = max(self.product.programs - self.senders, 1)
        self.space = workspace_of(
            problem,
            words=((rounds.words_of(problem.n_pes),), torch.uint64),
            flags=((self.product.most_tiles,), torch.uint64),
        )
        self.sample = a, b, self.space["result 0"], *samples(problem.scaling, a)

    def prepare(self, base: int, programs: int) -> Prepared:
        problem, product, (above, before) = self.problem, self.product, self.problem.corner
        constants: dict[str, Any] = product.constants(1, before)
        for name in ("KIND", "STREAMED", "SLAB", "CHIPLETS"):
            del constants[name]
        fixed = (
            shmem.device_context(problem.team), self.space["words"], self.space["flags"], problem.m, problem.n,
            problem.k, problem.a.pitch, problem.b.pitch, max(self.sample[2].stride(0), 1), above,
            before // constants["VECTOR"], base, self.computing, self.senders,
        )  # fmt: skip
        row = product.row
        return Prepared(
            multiply_or_send, programs, fixed, self.sample, constants, num_warps=row.warps, num_stages=row.stages
        )
