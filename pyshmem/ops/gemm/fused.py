"""One kernel: products that send their tiles, or the rows that others multiply, from their K loops."""

from __future__ import annotations

import torch

from pyshmem.ops import protocol
from pyshmem.ops.gemm.all_gather_gemm_kernel import Gathering
from pyshmem.ops.gemm.gemm_kernel import COLUMNS, REDUCE, ROWS, SCATTER, adds, prepare
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.workspace import Workspace

KINDS = {
    ("gemm_all_gather", "rows"): ROWS,
    ("gemm_all_gather", "columns"): COLUMNS,
    ("gemm_reduce_scatter", "rows"): SCATTER,
    ("gemm_all_reduce", "rows"): REDUCE,
}


class MultiplyAndSend:
    """The kernel of a plan with its memory."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        kind = KINDS[problem.operator, problem.split].value
        n, item = problem.n_pes, problem.dtype
        own = -(-problem.M // n)  # rows of a slot
        adding = adds(kind)
        product = Product(problem, problem.options.order, problem.m, problem.a, adding)
        self.space = workspace_of(
            problem,
            space,
            None if kind == SCATTER.value else (),  # the other kinds end a call on all PEs together
            words=((protocol.words_of(n),), torch.uint64),
            tallies=((product.most_streamed,), torch.uint64),
            flags=((1 + product.tiles // n * (n - 1) if adding else 1,), torch.uint64),
            slots=((2 * (n - 1), own, problem.N) if adding else (0,), item),
        )
        parts = torch.empty((problem.M, problem.N) if adding else (0,), dtype=item, device=a.device)
        places = (*(self.space[name] for name in ("words", "tallies")), parts, self.space["slots"], self.space["flags"])
        sample = self.space["result 0"] if problem.symmetric else a.new_empty(problem.result, dtype=item)
        self.kernel = prepare(product, kind, places, (a, b, sample), problem.corner)

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
