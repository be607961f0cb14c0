"""Two parties at the same time: one produces what the other waits for, by flags of its chunks."""

from __future__ import annotations

import itertools

import torch

from pyshmem.ops import protocol
from pyshmem.ops.copies import Flags, peers_of, put
from pyshmem.ops.gemm.all_gather_gemm_kernel import Gathering
from pyshmem.ops.gemm.exchanges import rows_of, scales_of_pes
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.scaling import NONE, gathered_scales
from pyshmem.ops.gemm.steps import Steps
from pyshmem.ops.gemm.workgroup_specialized import Specialized
from pyshmem.ops.shares import start_of
from pyshmem.ops.streams import Side
from pyshmem.ops.workspace import Workspace


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


STEPS = {
    ("gemm_all_gather", "rows"): MultiplyThenSend,
    ("gemm_all_gather", "columns"): MultiplyThenSend,
    ("all_gather_gemm", "rows"): CopyThenMultiply,
}
