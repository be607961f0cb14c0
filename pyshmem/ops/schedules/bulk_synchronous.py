"""The library's product, then the communication, on one stream: what the other schedules are compared with."""

from __future__ import annotations

from typing import Any

import torch

import pyshmem as shmem
from pyshmem.ops.exchanges import Sum, peers_of, put_part, put_rows, rows_of
from pyshmem.ops.libraries import multiply
from pyshmem.ops.problem import Problem
from pyshmem.ops.workspace import workspace_of


class GatherRows:
    """Each PE multiplies its rows in place, and puts them to all PEs."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, self.space = problem, workspace_of(problem)
        self.first, self.last = rows_of(problem, problem.me)
        self.multiply = multiply(problem, a, b, self.first, 0)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        team = self.problem.team
        self.multiply(a, b, out[self.first : self.last])
        shmem.barrier_on_stream(team)
        for pe in peers_of(team):
            put_rows(team, out, self.first, self.last, pe)
        shmem.barrier_on_stream(team)


class GatherColumns:
    """Each PE multiplies its columns, and stores them in those of all PEs."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, self.space = problem, workspace_of(problem)
        self.first = problem.corner[1]
        self.own = torch.empty(problem.m, problem.n, dtype=problem.dtype, device=a.device)
        self.views: dict[int, list[torch.Tensor]] = {}  # of out on all PEs, by its address
        self.multiply = multiply(problem, a, b, 0, self.first)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        team, columns = self.problem.team, slice(self.first, self.first + self.problem.n)
        self.multiply(a, b, self.own)
        out[:, columns].copy_(self.own)
        shmem.barrier_on_stream(team)
        for there in self._views(out):
            there[:, columns].copy_(self.own)
        shmem.barrier_on_stream(team)

    def _views(self, out: torch.Tensor) -> list[torch.Tensor]:
        """``out`` on all peers."""
        found = self.views.get(out.data_ptr())
        if found is None:
            there = [shmem.team_ptr(out, pe, self.problem.team) for pe in peers_of(self.problem.team)]
            found = self.views[out.data_ptr()] = [each for each in there if each is not None]
        return found


class MultiplyGathered:
    """Each PE puts its rows of a to all PEs, and multiplies all rows."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem = problem
        self.space = workspace_of(problem, gathered=((problem.M, problem.K), problem.dtype))
        self.gathered = self.space["gathered"]
        self.multiply = multiply(problem, self.gathered, b, *problem.corner)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        team, (first, last) = self.problem.team, rows_of(self.problem, self.problem.me)
        shmem.barrier_on_stream(team)  # no PE reads its gathered rows of the last call any more
        self.gathered[first:last].copy_(a)
        for pe in peers_of(team):
            put_rows(team, self.gathered, first, last, pe)
        shmem.barrier_on_stream(team)
        self.multiply(self.gathered, b, out)


class ReduceScatter:
    """Each PE multiplies its part of K, puts the rows of each owner into a slot there, and adds its own."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, n, own = problem, problem.n_pes, -(-problem.M // problem.n_pes)
        self.space = workspace_of(problem, slots=((n - 1, own, problem.N), problem.dtype))
        self.slots = self.space["slots"]
        self.parts = torch.empty(problem.M, problem.N, dtype=problem.dtype, device=a.device)
        self.multiply = multiply(problem, a, b, 0, 0, epilogue=False)
        self.first, self.last = rows_of(problem, problem.me)
        self.sum = Sum(problem, self.parts[self.first : self.last], self.slots, self.first)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        self.multiply(a, b, self.parts)
        shmem.barrier_on_stream(self.problem.team)  # no PE reads its slots of the last call any more
        for pe in peers_of(self.problem.team):
            put_part(self.problem, self.slots, self.parts, pe, *rows_of(self.problem, pe))
        shmem.barrier_on_stream(self.problem.team)
        self.sum(self.parts[self.first : self.last], out)


class AllReduce:
    """Each PE multiplies its part of K; the parts are reduced in place."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, self.space = problem, workspace_of(problem)
        self.multiply = multiply(problem, a, b, 0, 0, epilogue=False)
        self.finish: Any = None
        if problem.options.epilogue is not None:
            sample = self.space["result 0"]
            self.finish = Sum(problem, sample, sample.new_empty(0, *problem.result), 0)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        self.multiply(a, b, out)
        if out.numel():
            shmem.reduce_on_stream(out, out, "sum", team=self.problem.team)
        if self.finish is not None:
            self.finish(out, out)


STEPS = {
    ("gemm_all_gather", "rows"): GatherRows,
    ("gemm_all_gather", "columns"): GatherColumns,
    ("all_gather_gemm", "rows"): MultiplyGathered,
    ("gemm_reduce_scatter", "rows"): ReduceScatter,
    ("gemm_all_reduce", "rows"): AllReduce,
}
