"""A product as kernels make it: its tiles by GPU and type, which of them are streamed, and the form of its kernel."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from pyshmem.device.arch.fields import encoded_each
from pyshmem.ops.gemm.orders import POLICIES, group_size, most_streamed, whole_tiles
from pyshmem.ops.gemm.problem import Operand, Problem
from pyshmem.ops.gemm.scaling import LINES, NONE
from pyshmem.ops.gemm.tile import Form, Schedule
from pyshmem.ops.machine import Machine, machine
from pyshmem.ops.plans import twin


class Configuration(NamedTuple):
    """BM, BN, BK: the elements of a tile and of a step of its K loop.  group: rows of tiles in a band.

    least: streamed tiles are cut into parts of so many steps or more.  kpack: on gfx942, the operands' elements of so many
    matrix instructions lie together in LDS: 2 reads 16 bytes at once, and takes 6 to 12 registers less.
    """

    BM: int
    BN: int
    BK: int
    warps: int
    stages: int
    group: int = 8
    least: int = 16
    kpack: int = 1

    @property
    def compiled(self) -> dict[str, int]:
        """What the compiler is told."""
        found = {"num_warps": self.warps, "num_stages": self.stages}
        return found if self.kpack == 1 else {**found, "kpack": self.kpack}

    def cuts(self, k: int) -> bool:
        """Whether the tiles of a product over ``k`` are deep enough to be cut."""
        return k > (2 * self.least - 1) * self.BK


# (architecture, bytes of an element)
_ROWS = {
    ("interpreter", 1): Configuration(32, 32, 32, 4, 1, 2, least=1),
    ("nvidia", 1): Configuration(128, 128, 128, 8, 4),  # its sums take twice the registers, see tile.multiplied
    ("gfx942", 1): Configuration(128, 128, 128, 4, 2),
    ("gfx950", 1): Configuration(128, 128, 128, 4, 2),
    ("interpreter", 2): Configuration(32, 32, 32, 4, 1, 2, least=1),
    ("interpreter", 4): Configuration(32, 32, 32, 4, 1, 2, least=1),
    ("nvidia", 2): Configuration(128, 256, 64, 8, 4),
    ("nvidia", 4): Configuration(128, 128, 32, 8, 3),
    ("gfx90a", 2): Configuration(128, 128, 32, 4, 2),
    ("gfx90a", 4): Configuration(64, 64, 32, 4, 2),
    ("gfx942", 2): Configuration(128, 128, 64, 4, 2, kpack=2),  # larger tiles spill; fewer warps may use 512 registers
    ("gfx942", 4): Configuration(128, 128, 32, 8, 2),
    ("gfx950", 2): Configuration(128, 128, 64, 4, 2),
    ("gfx950", 4): Configuration(128, 128, 32, 8, 2),
}


def configuration(
    arch: str, dtype: torch.dtype, tile: tuple[int, int, int] | None, fast: bool = False
) -> Configuration:
    """Return the row for a type. tile: BM, BN, BK instead of the row's, of which any part may then be streamed.

    fast: whether sums take half of the registers.
    """
    row = _ROWS[arch, dtype.itemsize]
    if fast and arch == "nvidia":
        row = row._replace(BN=2 * row.BN)
    return row if tile is None else row._replace(BM=tile[0], BN=tile[1], BK=tile[2], least=1, kpack=1)


def tiles_of(shape: tuple[int, int, int], row: Configuration) -> int:
    """Return the number of tiles of a product (m, n, k)."""
    return -(-shape[0] // row.BM) * -(-shape[1] // row.BN)


class Product:
    """This PE's product (m, k) @ (k, n) of a problem, cut into tiles."""

    def __init__(self, problem: Problem, order: str, m: int, a: Operand, adding: bool) -> None:
        """m, a: the rows and the layout of the first operand.  adding: whether tiles belong to PEs by their rows."""
        self.problem, self.m, self.a, self.machine = problem, m, a, machine()
        options = problem.options
        self.row = configuration(self.machine.arch, problem.a.dtype, options.tile, options.use_fast_accum)
        self.adding, self.programs, self._policy = adding, self.machine.programs, POLICIES[order]
        self._deep = self.row.cuts(problem.largest[2])
        self._ragged = problem.n % self.row.BN > 0 or not problem.n
        self._forms: dict[Any, Form] = {}  # of this and of products with other rows, by what differs between them
        self._cut(m)

    def of(self, problem: Problem, m: int) -> Product:
        """Return the product of a problem that differs in its rows alone."""
        made = twin(self)
        made.problem = problem
        made._cut(m)
        return made

    def _cut(self, m: int) -> None:
        self.m, self.tiles = m, self._tiles(m, self.problem.n)
        self.whole = whole_tiles(self.tiles, self.programs, self._policy, self._deep)
        self.crowd = group_size(self.tiles - self.whole, self.programs, self._policy)

    # of any PE: symmetric memory has one size on all of them, though one may have a row of tiles more

    @property
    def most_tiles(self) -> int:
        rows, columns, _ = self.problem.largest
        return self._tiles(rows, columns)

    @property
    def most_streamed(self) -> int:
        return most_streamed(self.most_tiles, self.programs, self._policy, self._deep)

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

    def schedule(self, above: int, before: int) -> Schedule:
        """Return which tiles the kernel makes, encoded. above, before: as in tile.Schedule."""
        return Schedule(*encoded_each(above, before, self.whole, self.tiles, self.crowd, self.row.least))

    @property
    def groups(self) -> int:
        """Of streamed tiles."""
        return -(-(self.tiles - self.whole) // self.crowd)

    def sums(self, device: torch.device) -> torch.Tensor:
        """Allocate the sums of parts of streamed tiles."""
        room = (2 * self.groups * self.programs, self.row.BM, self.row.BN)
        return torch.empty(room, dtype=torch.float32, device=device)

    def form(self, fan: int, before: int = 0, rows: int | None = None) -> Form:
        """Return how the kernel is compiled.

        fan: the most PEs that a tile is sent to.  before: the columns of the result in front of the product.
        rows: of the operand a, where it is a part of the product's.
        """
        problem, row, n_pes = self.problem, self.row, self.problem.n_pes
        cut = self.m % n_pes or self.m // n_pes % row.BM if self.adding else self.m % row.BM
        edges = cut > 0 or self._ragged
        by_tma = described(problem, self.machine, self.a, self.m if rows is None else rows)
        key = fan, before, edges, by_tma, self.whole < self.tiles, precision(problem, self.machine)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = self._form(*key)
        return found

    def _form(self, fan: int, before: int, edges: bool, by_tma: bool, streamed: bool, exactly: str) -> Form:
        problem, row = self.problem, self.row
        threads = row.warps * (64 if self.machine.arch.startswith("gfx") else 32)
        return Form(
            row.BM, row.BN, row.BK, self.a.along, problem.b.along,
            DESCRIBED=by_tma,
            WHOLE=not (edges or by_tma or problem.k % row.BK), EDGES=edges, PRECISION=exactly,
            GROUP=row.group, CHIPLETS=self.machine.chiplets, SLAB=self._slab(threads), FAN=fan,
            STREAMED=streamed, VECTOR=math.gcd(before, 16 // problem.dtype.itemsize),
            EACH=problem.scaling == LINES, CLAMPED=self.machine.arch != "nvidia",
        )  # fmt: skip

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
    """Return PRECISION of tile.multiplied."""
    eight = problem.scaling != NONE
    if here.arch == "interpreter" and (eight or problem.a.dtype is torch.bfloat16):
        return "widened"
    if here.arch == "nvidia" and eight and not problem.options.use_fast_accum:
        return "promoted"
    return "tf32" if problem.a.dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32 else "ieee"
