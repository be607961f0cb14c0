"""The library's product, then the communication, on one stream: what the other schedules are compared with."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.host.on_stream import sum_in_place
from pyshmem.ops.copies import peers_of
from pyshmem.ops.gemm.exchanges import Sum, rows_of, scales_of_pes, scatterer, sender
from pyshmem.ops.gemm.library import multiply
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.scaling import NONE, gathered_scales
from pyshmem.ops.protocol import words_of
from pyshmem.ops.workspace import Workspace


class GatherRows:
    """Each PE multiplies its rows in place, and puts them to all PEs."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.space = workspace_of(problem, space, words=((words_of(problem.n_pes),), torch.uint64))
        self.first, self.last = rows_of(problem, problem.me)
        self.multiply = multiply(problem, a, b, self.first, 0)
        own = self.space["result 0"][self.first : self.last]
        self.send = sender(problem, self.space["words"], own, own, first=True)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        own = out[self.first : self.last]
        self.multiply(a, b, own, *scales)
        self.send(own, own)


class GatherColumns:
    """Each PE multiplies its columns, and stores them in those of all PEs."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.problem, self.space = problem, workspace_of(problem, space)
        self.first = problem.corner[1]
        self.own = torch.empty(problem.m, problem.n, dtype=problem.dtype, device=a.device)
        self.views: dict[int, list[torch.Tensor]] = {}  # of out on all PEs, by its address
        self.multiply = multiply(problem, a, b, 0, self.first)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        team, columns = self.problem.team, slice(self.first, self.first + self.problem.n)
        self.multiply(a, b, self.own, *scales)
        out[:, columns].copy_(self.own)
        shmem.barrier_on_stream(team)
        for there in self._views(out) if out.numel() else ():
            there[:, columns].copy_(self.own)
        shmem.barrier_on_stream(team)

    def _views(self, out: torch.Tensor) -> list[torch.Tensor]:
        """``out`` on all peers."""
        found = self.views.get(out.data_ptr())
        if found is None:
            team = self.problem.team
            found = self.views[out.data_ptr()] = [shmem.team_ptr(out, pe, team) for pe in peers_of(team)]
        return found


class MultiplyGathered:
    """Each PE puts its rows of a to all PEs, and multiplies all rows."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        words = ((words_of(problem.n_pes),), torch.uint64)
        gathered = ((problem.M, problem.K), a.dtype)
        self.space = workspace_of(problem, space, words=words, gathered=gathered, **gathered_scales(problem))
        self.gathered = self.space["gathered"]
        first, last = rows_of(problem, problem.me)
        self.own = self.gathered[first:last]
        # they meet first: no PE reads its gathered rows of the last call any more
        self.send = sender(problem, self.space["words"], a.contiguous(), self.own, first=True, own=True)
        blocks = [(0, problem.M)]
        if problem.scaling != NONE:
            self.scales = scales_of_pes(problem, self.space["scales"])
            self.place = self.scales[problem.me]
            self.send_scales = sender(problem, self.space["words"], self.place, self.place, own=True)
            blocks = [rows_of(problem, pe) for pe in range(problem.n_pes)]
        self.steps = [(i, j, multiply(problem, self.gathered[i:j], b, i, problem.corner[1])) for i, j in blocks]

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.send(a.contiguous(), self.own)
        if scales:
            self.send_scales(scales[0], self.place)
        for pe, (i, j, step) in enumerate(self.steps):
            factors = (self.scales[pe], scales[1]) if scales else ()
            step(self.gathered[i:j], b, out[i:j], *factors)


class ReduceScatter:
    """Each PE multiplies its part of K, puts the rows of each owner into a slot there, and adds its own."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        n, own = problem.n_pes, -(-problem.M // problem.n_pes)
        words = ((words_of(n),), torch.uint64)
        self.space = workspace_of(problem, space, words=words, slots=((n - 1, own, problem.N), problem.dtype))
        slots = self.space["slots"]
        self.parts = torch.empty(problem.M, problem.N, dtype=problem.dtype, device=a.device)
        self.multiply = multiply(problem, a, b, 0, 0, epilogue=False)
        self.first, self.last = rows_of(problem, problem.me)
        self.scatter = scatterer(problem, self.space["words"], slots, self.parts)
        summed = self.parts[self.first : self.last]
        double = problem.dtype is torch.float64
        self.sum: Any = partial(_sum, slots) if double else Sum(problem, summed, slots, self.first)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.multiply(a, b, self.parts, *scales)
        self.scatter(self.parts)
        self.sum(self.parts[self.first : self.last], out)


def _sum(slots: torch.Tensor, part: torch.Tensor, out: torch.Tensor) -> None:
    """Store the sum of a part and of the slots beside it, of float64."""
    torch.add(part, slots[:, : len(part)].sum(0), out=out)


class AllReduce:
    """Each PE multiplies its part of K; the parts are reduced in place."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.problem, self.space = problem, workspace_of(problem, space)
        self.multiply = multiply(problem, a, b, 0, 0, epilogue=False)
        self.finish: Any = None
        if problem.options.epilogue is not None:
            sample = self.space["result 0"]
            self.finish = Sum(problem, sample, sample.new_empty(0, *problem.result), 0)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.multiply(a, b, out, *scales)
        if out.numel():
            sum_in_place(out, self.problem.team)  # a PE replays it as soon as it has had its own addresses before
        if self.finish is not None:
            self.finish(out, out)


STEPS = {
    ("gemm_all_gather", "rows"): GatherRows,
    ("gemm_all_gather", "columns"): GatherColumns,
    ("all_gather_gemm", "rows"): MultiplyGathered,
    ("gemm_reduce_scatter", "rows"): ReduceScatter,
    ("gemm_all_reduce", "rows"): AllReduce,
}
