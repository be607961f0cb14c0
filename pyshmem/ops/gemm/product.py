"""The kernel of a product as plans need it: its tile sizes, grid, order and constants."""

from __future__ import annotations

import math
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.kernels.launching import Prepared
from pyshmem.ops.gemm.configurations import configuration
from pyshmem.ops.gemm.orders.streamed import POLICIES, group_size, most_streamed, whole_tiles
from pyshmem.ops.gemm.problem import Operand, Problem
from pyshmem.ops.gemm.scaling import LINES, NONE, parameters, samples
from pyshmem.ops.machine import Machine, machine

Array = torch.Tensor


class Product:
    """This PE's product (m, k) @ (k, n) of a problem, cut into tiles."""

    def __init__(self, problem: Problem, order: str, m: int, a: Operand, adding: bool) -> None:
        """m, a: the rows and the layout of the first operand.  adding: whether tiles belong to PEs by their rows."""
        self.problem, self.m, self.a, self.machine = problem, m, a, machine()
        options = problem.options
        self.row = configuration(self.machine.arch, problem.a.dtype, options.tile, options.use_fast_accum)
        self.adding, self.programs, policy = adding, self.machine.programs, POLICIES[order]
        rows, columns, k = problem.largest
        cut = self.row.cuts(k)
        self.tiles = self._tiles(m, problem.n)
        self.whole = whole_tiles(self.tiles, self.programs, policy, cut)
        self.crowd = group_size(self.tiles - self.whole, self.programs, policy)
        # of any PE: symmetric memory has one size on all of them, though one may have a row of tiles more
        self.most_tiles = self._tiles(rows, columns)
        self.most_streamed = most_streamed(self.most_tiles, self.programs, policy, cut)

    def _tiles(self, m: int, n: int) -> int:
        """The number of tiles of a product of m rows and n columns."""
        row, n_pes = self.row, self.problem.n_pes
        high = -(-m // row.BM)  # rows of tiles
        if self.adding:
            own = -(-m // n_pes)
            high = n_pes * -(-own // row.BM)
        return high * -(-n // row.BN)

    def keep(self, tiles: int) -> None:
        """Stream none of the first ``tiles``."""
        self.whole = max(self.whole, tiles)

    @property
    def streamed(self) -> tuple[int, int, int, int]:
        """What the kernel is told: whole, tiles, crowd, least."""
        return self.whole, self.tiles, self.crowd, self.row.least

    def sums(self, device: torch.device) -> Array:
        """Allocate the sums of parts of streamed tiles."""
        groups = -(-(self.tiles - self.whole) // self.crowd)
        room = (2 * groups * self.programs, self.row.BM, self.row.BN)
        return torch.empty(room, dtype=torch.float32, device=device)

    def alone(self, a: Array, b: Array, row: int, column: int, tallies: Array | None = None) -> Prepared:
        """Compile the product without communication. row, column: as in libraries.multiply.

        tallies: symmetric words, one for each streamed tile.
        """
        words, none = (torch.empty(0, dtype=each, device=a.device) for each in (torch.uint64, self.problem.dtype))
        places = (words, words if tallies is None else tallies, none, none, words)
        result = a.new_empty(self.m, self.problem.n, dtype=self.problem.dtype)
        return self.prepare(0, places, a, b, result, (row, column))

    def prepare(
        self, kind: int, places: tuple[Array, ...], a: Array, b: Array, c: Array, corner: tuple[int, int]
    ) -> Prepared:
        """Compile for arrays like a, b and c.

        places: the plan's words, tallies, parts, slots and marks.
        corner: the rows above and the columns before the product in c.
        """
        from pyshmem.ops.gemm import fused

        problem = self.problem
        words, tallies, *rest = places
        (above, before), constants = corner, self.constants(kind, corner[1])
        fixed = (
            shmem.device_context(problem.team), words, self.sums(a.device), tallies, *rest, self.m, problem.n, problem.k,
            self.a.pitch, problem.b.pitch, max(c.stride(0), 1), above, before // constants["VECTOR"],
            *self.streamed,
        )  # fmt: skip
        row = self.row
        return Prepared(
            fused.multiply_and_send, self.programs, fixed, (a, b, c, *samples(problem.scaling, a)), constants,
            num_warps=row.warps, num_stages=row.stages,
        )  # fmt: skip

    def constants(self, kind: int, before: int) -> dict[str, Any]:
        """The constant arguments of the kernel, in its order."""
        problem, row = self.problem, self.row
        n_pes = problem.n_pes
        fan = {0: 0, 3: min(1, n_pes - 1)}.get(kind, n_pes - 1)
        cut = self.m % n_pes or self.m // n_pes % row.BM if self.adding else self.m % row.BM
        edges = bool(cut or problem.n % row.BN)
        vector = math.gcd(before, 16 // problem.dtype.itemsize)
        threads = row.warps * (64 if self.machine.arch.startswith("gfx") else 32)
        return parameters(problem.scaling) | {
            "KIND": kind, "BM": row.BM, "BN": row.BN, "BK": row.BK, "A_ALONG": self.a.along, "B_ALONG": problem.b.along,
            "DESCRIBED": described(problem, self.machine, self.a, self.m),
            "WHOLE": not edges and problem.k % row.BK == 0, "EDGES": edges,
            "PRECISION": precision(problem, self.machine), "SLAB": self._slab(threads), "FAN": fan,
            "GROUP": row.group, "CHIPLETS": self.machine.chiplets, "STREAMED": self.whole < self.tiles,
            "VECTOR": vector, "EPILOGUE": problem.options.epilogue, "EACH": problem.scaling == LINES,
        }  # fmt: skip

    def _slab(self, threads: int) -> int:
        """The rows of a slab: 16 bytes a thread, or up to 64 where the K loop has few steps for all slabs."""
        row, line = self.row, self.row.BN * self.problem.sent.itemsize
        rows = max(min(threads * 16 // line, row.BM), 1)
        steps = -(-self.problem.k // row.BK)
        while row.BM // rows + 2 > steps and rows < row.BM // 2 and rows * line < threads * 64:
            rows *= 2
        return rows


def described(problem: Problem, here: Machine, a: Operand, m: int) -> bool:
    """Whether the kernel loads blocks of its (m, k) and (k, n) operands by tensor descriptors."""
    return here.described and a.aligned and problem.b.aligned and min(m, problem.n, problem.k) > 0


def precision(problem: Problem, here: Machine) -> str:
    """Return PRECISION of products.multiplied."""
    eight = problem.scaling != NONE
    if here.arch == "interpreter" and (eight or problem.a.dtype is torch.bfloat16):
        return "widened"
    if here.arch == "nvidia" and eight and not problem.options.use_fast_accum:
        return "promoted"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
