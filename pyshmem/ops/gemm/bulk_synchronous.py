"""The library's product, then the communication, on one stream: what the other schedules are compared with."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.host.streams.collectives import sum_in_place
from pyshmem.ops.copies import peers_of
from pyshmem.ops.gemm.exchanges import Sum, scatterer, sender
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.scaling import NONE, gathered_scales
from pyshmem.ops.gemm.steps import Steps, multiply, multiply_each, rows_of, scales_of_pes, workspace_of
from pyshmem.ops.protocol import words_of
from pyshmem.ops.workspace import Workspace

MOST_VIEWS = 16  # results of a plan whose places on peers are kept


class GatherRows(Steps):
    """Each PE multiplies its rows in place, and puts them to all PEs."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.space = workspace_of(problem, space, words=((words_of(problem.n_pes),), torch.uint64))
        self.multiply = multiply(problem, a, b, rows_of(problem, problem.me)[0], 0)
        self.sender = sender(problem, self.space["words"], problem.N, first=True)
        self.cut(problem, a, b)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.first, self.last = rows_of(problem, problem.me)
        own = self.space["result 0"][self.first : self.last]
        self.send = self.sender.of(own, own).with_numbers(own.numel())

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        own = out[self.first : self.last]
        self.multiply(a, b, own, *scales)
        self.send(own, own)


class GatherColumns(Steps):
    """Each PE multiplies its columns, and stores them in those of all PEs."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.team, self.space = problem.team, workspace_of(problem, space)
        self.columns = slice(problem.corner[1], problem.corner[1] + problem.n)
        self.most = torch.empty(problem.m, problem.n, dtype=problem.dtype, device=a.device)
        self.multiply = multiply(problem, a, b, 0, problem.corner[1])
        self.views: dict[int, tuple[int, list[torch.Tensor]]] = {}  # of out on all peers, with its rows, by its address
        self.cut(problem, a, b)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.own = self.most[: problem.m]

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.multiply(a, b, self.own, *scales)
        out[:, self.columns].copy_(self.own)
        shmem.barrier_on_stream(self.team)
        rows = out.shape[0]
        for there in self._views(out, rows) if out.numel() else ():
            there[:rows, self.columns].copy_(self.own)
        shmem.barrier_on_stream(self.team)

    def _views(self, out: torch.Tensor, rows: int) -> list[torch.Tensor]:
        """``out`` on all peers, which may have more rows: those of an earlier call at the same address."""
        most, found = self.views.get(out.data_ptr(), (-1, []))
        if most < rows:
            if len(self.views) >= MOST_VIEWS:
                self.views.clear()
            found = [shmem.team_ptr(out, pe, self.team) for pe in peers_of(self.team)]
            self.views[out.data_ptr()] = rows, found
        return found


class MultiplyGathered(Steps):
    """Each PE puts its rows of a to all PEs, and multiplies all rows."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        words = ((words_of(problem.n_pes),), torch.uint64)
        gathered = ((problem.M, problem.K), a.dtype)
        self.space = workspace_of(problem, space, words=words, gathered=gathered, **gathered_scales(problem))
        # they meet first: no PE reads its gathered rows of the last call any more
        self.sender = sender(problem, self.space["words"], problem.K, first=True, own=True)
        self.scale_sender: Any = None
        if problem.scaling != NONE:
            self.scale_sender = sender(problem, self.space["words"], 1, own=True)
        self.cut(problem, a, b)
        blocks = [(i, j, i) for i, j in self.blocks]
        self.multiply = multiply_each(problem, self.gathered, b, blocks, problem.corner[1])

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.gathered = self.space["gathered"][: problem.M]
        first, last = rows_of(problem, problem.me)
        self.own = self.gathered[first:last]
        self.send = self.sender.of(a.contiguous(), self.own).with_numbers(self.own.numel())
        self.blocks = [(0, problem.M)]
        if self.scale_sender:
            self.scales = scales_of_pes(problem, self.space["scales"])
            self.place = self.scales[problem.me]
            self.send_scales = self.scale_sender.of(self.place, self.place).with_numbers(self.place.numel())
            self.blocks = [rows_of(problem, pe) for pe in range(problem.n_pes)]

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.send(a.contiguous(), self.own)
        if scales:
            self.send_scales(scales[0], self.place)
        for pe, ((i, j), step) in enumerate(zip(self.blocks, self.multiply, strict=False)):
            factors = (self.scales[pe], scales[1]) if scales else ()
            step(self.gathered[i:j], b, out[i:j], *factors)


class ReduceScatter(Steps):
    """Each PE multiplies its part of K, puts the rows of each owner into a slot there, and adds its own."""

    epilogue = False

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        n, own = problem.n_pes, -(-problem.M // problem.n_pes)
        words = ((words_of(n),), torch.uint64)
        self.space = workspace_of(problem, space, words=words, slots=((n - 1, own, problem.N), problem.dtype))
        self.most = torch.empty(problem.M, problem.N, dtype=problem.dtype, device=a.device)
        self.multiply = multiply(problem, a, b, 0, 0, epilogue=False)
        self.scatterer = scatterer(problem, self.space["words"], self.space["slots"], self.most)
        self.adder = None if problem.dtype is torch.float64 else Sum(problem)
        self.cut(problem, a, b)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        slots, own = self.space["slots"], -(-problem.M // problem.n_pes)
        self.parts = self.most[: problem.M]
        self.first, self.last = rows_of(problem, problem.me)
        self.scatter = partial(self.scatterer.with_numbers(problem.M, problem.N), slots)
        summed = self.parts[self.first : self.last]
        self.sum: Any = self.adder.of(slots, own, summed, self.first) if self.adder else partial(_sum, slots, own)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.multiply(a, b, self.parts, *scales)
        self.scatter(self.parts)
        self.sum(self.parts[self.first : self.last], out)


def _sum(slots: torch.Tensor, tall: int, part: torch.Tensor, out: torch.Tensor) -> None:
    """Store the sum of a part and of the slots beside it, of ``tall`` rows each, of float64."""
    count, columns = slots.shape[0], slots.shape[2]
    dense = slots.view(-1)[: count * tall * columns].view(count, tall, columns)
    torch.add(part, dense[:, : len(part)].sum(0), out=out)


class AllReduce(Steps):
    """Each PE multiplies its part of K; the parts are reduced in place."""

    epilogue = False

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.team, self.space = problem.team, workspace_of(problem, space)
        self.multiply = multiply(problem, a, b, 0, 0, epilogue=False)
        self.adder = None if problem.options.epilogue is None else Sum(problem)
        self.cut(problem, a, b)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.finish: Any = None
        if self.adder is not None:
            sample = self.space["result 0"][: problem.M]
            self.finish = self.adder.of(sample.new_empty(0, *sample.shape), 0, sample, 0)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        self.multiply(a, b, out, *scales)
        if out.numel():
            sum_in_place(out, self.team)  # a PE replays it as soon as it has had its own addresses before
        if self.finish is not None:
            self.finish(out, out)


STEPS = {
    ("gemm_all_gather", "rows"): GatherRows,
    ("gemm_all_gather", "columns"): GatherColumns,
    ("all_gather_gemm", "rows"): MultiplyGathered,
    ("gemm_reduce_scatter", "rows"): ReduceScatter,
    ("gemm_all_reduce", "rows"): AllReduce,
}
