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
        """Those that end a call on all PEs together share memory."""
        return problem.operator != "gemm_reduce_scatter"

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.kind = KINDS[problem.operator, problem.split].value
        n, item, adding = problem.n_pes, problem.dtype, adds(self.kind)
        own = -(-problem.M // n)  # rows of a slot
        product = self._product(problem)
        self.space = workspace_of(
            problem,
            space,
            () if self.serves(problem) else None,
            words=((protocol.words_of(n),), torch.uint64),
            tallies=((product.most_streamed,), torch.uint64),
            flags=((1 + product.tiles // n * (n - 1) if adding else 1,), torch.uint64),
            slots=((2 * (n - 1), own, problem.N) if adding else (0,), item),
        )
        self.parts = torch.empty((problem.M, problem.N) if adding else (0,), dtype=item, device=a.device)
        self.multiply: Multiply | None = None
        self.cut(problem, a, b)

    def _product(self, problem: Problem) -> Product:
        return Product(problem, problem.options.order, problem.m, problem.a, adds(self.kind))

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        product = self._product(problem)
        if self.multiply is None or not self.multiply.holds(product):
            words, tallies, flags, slots = (self.space[name] for name in ("words", "tallies", "flags", "slots"))
            sample = self.space["result 0"] if problem.symmetric else a.new_empty(problem.result, dtype=problem.dtype)
            self.multiply = Multiply(product, self.kind, (words, tallies, self.parts, slots, flags), (a, b, sample))
        self.kernel = self.multiply.of(product, problem.corner)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.kernel(a, b, out, *scales)


class MultiplyAndSendRows:
    """all_gather_gemm: the K loops of the tiles of own rows send these rows."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.gathering = Gathering(problem, a.contiguous(), b, space, sends=True)
        self.space = self.gathering.space

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.gathering(a.contiguous(), b, out, *scales)


STEPS = dict.fromkeys(KINDS, MultiplyAndSend) | {("all_gather_gemm", "rows"): MultiplyAndSendRows}
