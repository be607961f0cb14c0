"""One kernel: products that send their tiles, or the rows that others multiply, from their K loops."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.kernels.compiled import like
from pyshmem.ops import protocol
from pyshmem.ops.gemm.all_gather_gemm_kernel import Memory, gather_and_multiply
from pyshmem.ops.gemm.gemm_kernel import COLUMNS, REDUCE, ROWS, SCATTER, Multiply, adds
from pyshmem.ops.gemm.problem import Operand, Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import gathered_scales, parameters, samples
from pyshmem.ops.gemm.steps import Steps, workspace_of
from pyshmem.ops.gemm.tile import Form, shape_of
from pyshmem.ops.shares import share_of
from pyshmem.ops.workspace import Workspace

KINDS = {
    ("gemm_all_gather", "rows"): ROWS,
    ("gemm_all_gather", "columns"): COLUMNS,
    ("gemm_reduce_scatter", "rows"): SCATTER,
    ("gemm_all_reduce", "rows"): REDUCE,
}


class MultiplyAndSend(Steps):
    """The kernel of a plan with its memory."""

    @classmethod
    def serves(cls, problem: Problem) -> bool:
        """All sizes of a product are numbers for its kernel."""
        return True

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.kind = KINDS[problem.operator, problem.split].value
        adding = adds(self.kind)
        n, item = problem.n_pes, problem.dtype
        product = Product(problem, problem.options.order, problem.m, problem.a, adding)
        own = self.tall = -(-problem.M // n)  # the rows of a slot
        ends = problem.operator != "gemm_reduce_scatter"  # a call on all PEs before the next one begins on any
        self.space = workspace_of(
            problem,
            space,
            () if ends else (problem.M,),  # with it, slots and flags have the same places
            words=((protocol.words_of(n),), torch.uint64),
            tallies=((product.most_streamed,), torch.uint64),
            flags=((1 + product.tiles // n * (n - 1) if adding else 1,), torch.uint64),
            slots=((2 * (n - 1), own, problem.N) if adding else (0,), item),
        )
        self.parts = torch.empty((problem.M, problem.N) if adding else (0,), dtype=item, device=a.device)
        self.product, self.multiply = product, None
        self.cut(problem, a, b)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        product = self.product = self.product.of(problem, problem.m)
        if self.multiply is None or not self.multiply.holds(product):
            words, tallies, flags, slots = (self.space[name] for name in ("words", "tallies", "flags", "slots"))
            sample = self.space["result 0"] if problem.symmetric else a.new_empty(problem.result, dtype=problem.dtype)
            places = words, tallies, self.parts, slots, flags
            self.multiply = Multiply(product, self.kind, places, (a, b, sample), self.tall)
        self.kernel = self.multiply.of(product, problem.corner)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)


class MultiplyAndSendRows(Steps):
    """all_gather_gemm: the K loops of the tiles of own rows send these rows."""

    @classmethod
    def serves(cls, problem: Problem) -> bool:
        """All sizes of a product are numbers for its kernel. A PE without rows would not tell its flags."""
        return problem.n_pes <= problem.M

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        n, uint64, a = problem.n_pes, torch.uint64, a.contiguous()
        aligned = problem.K * a.itemsize % 16 == 0  # of gathered rows
        self.layout = Operand(True, max(problem.k, 1), aligned and a.data_ptr() % 16 == 0, a.dtype)
        self.product = Product(problem, problem.options.order, problem.M, self.layout, True)
        product, most = self._product(problem), -(-problem.M // n)
        self.chunks = max(-(-most // product.row.BM), 1)
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
        form = product.form(n - 1, rows=problem.m)
        cut = form.EDGES or share_of(problem.M, 0, n) * problem.K % (form.SLAB * product.row.BN) > 0
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
        self.kernel(a.contiguous(), b, out, *scales)


STEPS = dict.fromkeys(KINDS, MultiplyAndSend) | {("all_gather_gemm", "rows"): MultiplyAndSendRows}
