"""Two parties at the same time: one produces what the other waits for, by flags for its parts."""

from __future__ import annotations

import itertools

import torch

import pyshmem as shmem
from pyshmem.ops import rounds
from pyshmem.ops.exchanges import peers_of, rows_of, scales_of_pes, world_pe
from pyshmem.ops.gathering import Gathering
from pyshmem.ops.problem import Problem
from pyshmem.ops.scaling import NONE
from pyshmem.ops.shares import start_of
from pyshmem.ops.specialized import Parties
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
        self.problem = problem
        self.multiply = gathering = Gathering(problem, a, b, sends=False)
        self.space, self.pieces, self.flags = gathering.space, gathering.pieces, gathering.flags
        self.gathered = gathering.gathered
        if problem.scaling != NONE:
            self.scales = scales_of_pes(problem, self.space["scales"])[problem.me]
        self.stamp = gathering.words[rounds.STAMP.value : rounds.STAMP.value + 1]
        self.stamp.view(torch.int64).fill_(1)
        self.first, _ = rows_of(problem, problem.me)
        self.sides = [(world_pe(problem.team, pe), Side(), Side()) for pe in reversed(peers_of(problem.team))]

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        """The last call has ended on all PEs: its kernels meet. So gathered may be written at once."""
        rows = a if a.is_contiguous() else a.contiguous()
        size = rows.shape[0]
        cuts = [start_of(size, piece, self.pieces) for piece in range(self.pieces + 1)]
        for world, side, behind in self.sides:
            with side.after():
                if scales and scales[0].numel():
                    shmem.put(self.scales, scales[0], world)
                for piece, (i, j) in enumerate(itertools.pairwise(cuts)):
                    if j > i:
                        shmem.put(self.gathered[self.first + i : self.first + j], rows[i:j], world)
                    with behind.after():  # beside the next piece: a copy takes 4 us to begin
                        shmem.put(self.flags[self.problem.me, piece : piece + 1], self.stamp, world)
        self.multiply(a, b, out, *scales)
        for _, side, behind in self.sides:
            side.join()
            behind.join()


STEPS = {
    ("gemm_all_gather", "rows"): MultiplyThenSend,
    ("gemm_all_gather", "columns"): MultiplyThenSend,
    ("all_gather_gemm", "rows"): CopyThenMultiply,
}
