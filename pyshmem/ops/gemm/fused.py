"""One kernel: products that send their tiles, or the rows that others multiply, from their K loops."""

from __future__ import annotations

import torch

from pyshmem.ops import protocol
from pyshmem.ops.gemm.all_gather_gemm_kernel import Gathering
from pyshmem.ops.gemm.gemm_kernel import COLUMNS, REDUCE, ROWS, SCATTER, Multiply, adds
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.steps import Steps
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


class MultiplyAndSendRows(Gathering):
    """all_gather_gemm: the K loops of the tiles of own rows send these rows."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        super().__init__(problem, a.contiguous(), b, space, sends=True)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a.contiguous(), b, out, *scales)


STEPS = dict.fromkeys(KINDS, MultiplyAndSend) | {("all_gather_gemm", "rows"): MultiplyAndSendRows}
