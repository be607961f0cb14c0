"""Two parties at the same time: one produces what the other waits for, by flags for its parts."""

from __future__ import annotations

import itertools

import torch

from pyshmem.ops import rounds
from pyshmem.ops.copies import peers_of, put
from pyshmem.ops.gemm.exchanges import rows_of, scales_of_pes
from pyshmem.ops.gemm.gathered import Gathering
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.scaling import NONE
from pyshmem.ops.gemm.specialized import Parties
from pyshmem.ops.shares import start_of
from pyshmem.ops.streams import Side


class MultiplyThenSend:
    """One kernel makes tiles and sets their flags; another one, on a side stream and on other SMs, sends them."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        parties = Parties(problem, a, b)
        self.space, self.side = parties.space, Side()
        self.producer = parties.prepare(0, parties.computing)
        self.consumer = parties.prepare(parties.computing, parties.senders)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        begun = self.side.after()
        self.producer(a, b, out, *scales)
        with begun:
            self.consumer(a, b, out, *scales)
        self.side.join()


class CopyThenMultiply:
    """The copy engine brings the rows of all PEs, a flag behind each piece; one kernel multiplies them as they come."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.team = problem.team
        self.multiply = gathering = Gathering(problem, a, b, sends=False)
        self.space, self.pieces, self.flags = gathering.space, gathering.pieces, gathering.flags
        self.gathered = gathering.gathered
        if problem.scaling != NONE:
            self.scales = scales_of_pes(problem, self.space["scales"])[problem.me]
        self.stamp = gathering.words[rounds.STAMP.value : rounds.STAMP.value + 1]
        self.stamp.view(torch.int64).fill_(1)
        self.first, _ = rows_of(problem, problem.me)
        self.sides = [(pe, Side(), Side()) for pe in reversed(peers_of(problem.team))]

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        """The last call has ended on all PEs: its kernels meet. So gathered may be written at once."""
        rows = a if a.is_contiguous() else a.contiguous()
        size = rows.shape[0]
        cuts = [start_of(size, piece, self.pieces) for piece in range(self.pieces + 1)]
        for pe, side, behind in self.sides:
            with side.after():
                if scales:
                    put(self.team, self.scales, scales[0], pe)
                for piece, (i, j) in enumerate(itertools.pairwise(cuts)):
                    put(self.team, self.gathered[self.first + i : self.first + j], rows[i:j], pe)
                    with behind.after():  # beside the next piece: a copy takes 4 us to begin
                        put(self.team, self.flags[self.team.me, piece : piece + 1], self.stamp, pe)
        self.multiply(a, b, out, *scales)
        for _, side, behind in self.sides:
            side.join()
            behind.join()


STEPS = {
    ("gemm_all_gather", "rows"): MultiplyThenSend,
    ("gemm_all_gather", "columns"): MultiplyThenSend,
    ("all_gather_gemm", "rows"): CopyThenMultiply,
}
