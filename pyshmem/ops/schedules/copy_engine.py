"""The library's product in pieces; the copy engine moves each piece on side streams while the next one is multiplied."""

from __future__ import annotations

from typing import Any

import torch

import pyshmem as shmem
from pyshmem.ops.exchanges import Sum, peers_of, put_part, put_rows, rows_of, world_pe
from pyshmem.ops.libraries import multiply
from pyshmem.ops.problem import Problem
from pyshmem.ops.schedules.bulk_synchronous import results_in
from pyshmem.ops.shares import start_of
from pyshmem.ops.streams import Side, await_mark
from pyshmem.ops.workspace import Workspace
from pyshmem.runtime.errors import ArgumentError, refuse

LEAST_ROWS = 256  # of a piece: smaller products leave most of a GPU idle
PIECES = 4


class Runner:
    """Calls of the operator by its steps below."""

    def __init__(self, problem: Problem, order: str, a: torch.Tensor, b: torch.Tensor) -> None:
        if (problem.operator, problem.split) not in _STEPS:
            wants = "split='rows': the copy engine moves whole rows"
            refuse(ArgumentError, problem.operator, "schedule", "'copy_engine' with split='columns'", wants)
        self.symmetric = problem.operator == "gemm_all_gather"
        self.steps: Any = _STEPS[problem.operator, problem.split](problem, a, b)
        self.results = self.steps.results

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        self.steps(a, b, out)

    def close(self) -> None:
        self.steps.space.close()


def pieces(first: int, last: int, count: int = PIECES) -> list[tuple[int, int]]:
    """Cut rows into at most ``count`` pieces of LEAST_ROWS or more."""
    count = max(min(count, (last - first) // LEAST_ROWS), 1)
    cuts = [first + start_of(last - first, i, count) for i in range(count + 1)]
    return list(zip(cuts, cuts[1:], strict=False))


class GatherRows:
    """Each PE multiplies its rows in pieces; each piece is put to all PEs on a stream for each of them."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, self.space = problem, results_in(problem)
        self.results = self.space["result 0"], self.space["result 1"]
        self.first, last = rows_of(problem, problem.me)
        self.pieces = pieces(self.first, last)
        self.multiply = [
            multiply(problem, a[i - self.first : j - self.first], b, i, 0) for i, j in self.pieces
        ]
        self.sides = {pe: Side() for pe in peers_of(problem.team)}

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        team = self.problem.team
        shmem.barrier_on_stream(team)
        for (i, j), step in zip(self.pieces, self.multiply, strict=True):
            step(a[i - self.first : j - self.first], b, out[i:j])
            for pe, side in self.sides.items():
                with side.after():
                    put_rows(team, out, i, j, pe)
        for side in self.sides.values():
            side.join()
        shmem.barrier_on_stream(team)


class MultiplyGathered:
    """Each PE multiplies its own rows, then those of its peers as they come: first all of the next PE's, and so on."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, self.results, team = problem, (), problem.team
        self.space = Workspace(problem, {"gathered": ((problem.M, problem.K), problem.dtype)})
        self.gathered = self.space["gathered"]
        column = start_of(problem.N, problem.me, problem.n_pes)
        self.first, self.last = rows_of(problem, problem.me)
        self.multiply_own = multiply(problem, a, b, self.first, column)
        self.steps = []  # (PE that gets, first and last row of what it gets, first and last row of what comes, product)
        for distance in range(1, team.size):
            to, of = (team.me - distance) % team.size, (team.me + distance) % team.size
            sent, came = (pieces_of(problem, pe) for pe in (team.me, of))
            for (i, j), (first, last) in zip(sent, came, strict=True):
                step = multiply(problem, self.gathered[first:last], b, first, column)
                self.steps.append((world_pe(team, to), i, j, first, last, step))
        self.side = Side()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        team, marks = self.problem.team, []
        rows = a if a.is_contiguous() else a.contiguous()
        with self.side.after():
            shmem.barrier_on_stream(team)  # no PE reads its gathered rows of the last call any more
            for pe, i, j, *_ in self.steps:
                if j > i:
                    shmem.put(self.gathered[i:j], rows[i - self.first : j - self.first], pe)
                shmem.barrier_on_stream(team)
                marks.append(self.side.mark())
        self.multiply_own(a, b, out[self.first : self.last])
        for (*_, first, last, step), mark in zip(self.steps, marks, strict=True):
            await_mark(mark)
            step(self.gathered[first:last], b, out[first:last])
        self.side.join()


def pieces_of(problem: Problem, pe: int) -> list[tuple[int, int]]:
    """The rows of ``pe`` in pieces, as many on every PE."""
    count = 2 if problem.M // problem.n_pes >= 2 * LEAST_ROWS else 1
    first, last = rows_of(problem, pe)
    cuts = [first + start_of(last - first, i, count) for i in range(count + 1)]
    return list(zip(cuts, cuts[1:], strict=False))


class ReduceScatter:
    """Each PE multiplies the rows of one owner after the other, its own last; the copy engine brings each to its owner."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, n, own = problem, problem.n_pes, -(-problem.M // problem.n_pes)
        self.space = Workspace(problem, {"slots": ((n - 1, own, problem.N), problem.dtype)})
        self.slots, self.results = self.space["slots"], ()
        self.parts = torch.empty(problem.M, problem.N, dtype=problem.dtype, device=a.device)
        self.owners = [(pe, *rows_of(problem, pe)) for pe in [*peers_of(problem.team), problem.me]]
        self.multiply = multiply(problem, a, b, 0, 0, epilogue=False)
        _, self.first, self.last = self.owners[-1]
        self.sum = Sum(problem, self.parts[self.first : self.last], self.slots, self.first)
        self.side = Side()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        team = self.problem.team
        shmem.barrier_on_stream(team)  # no PE reads its slots of the last call any more
        for pe, i, j in self.owners:
            self.multiply(a[i:j], b, self.parts[i:j])
            if pe != team.me:
                with self.side.after():
                    put_part(self.problem, self.slots, self.parts, pe)
        self.side.join()
        shmem.barrier_on_stream(team)
        self.sum(self.parts[self.first : self.last], out)


_STEPS = {
    ("gemm_all_gather", "rows"): GatherRows,
    ("all_gather_gemm", "rows"): MultiplyGathered,
    ("gemm_reduce_scatter", "rows"): ReduceScatter,
}
