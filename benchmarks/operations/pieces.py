"""The parts of a gemm_all_gather whose pieces the copy engine moves, each alone, and the whole by several cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import pyshmem as shmem
from benchmarks.accelerator import Accelerator
from benchmarks.in_job import GRAPH, Case
from benchmarks.operations import ops
from benchmarks.operations.ops import CALLS, DTYPE, ENGINE, GEMM, LEAD, OURS
from pyshmem.ops.copies import beginner, peers_of
from pyshmem.ops.gemm.copy_engine import cut
from pyshmem.ops.gemm.exchanges import put_rows, rows_of, sender
from pyshmem.ops.gemm.library import multiply
from pyshmem.ops.gemm.memory import workspace_of
from pyshmem.ops.gemm.problem import problem_of
from pyshmem.ops.gemm.selection import choose
from pyshmem.ops.rounds import words_of
from pyshmem.ops.streams import Side, await_mark

Waves = tuple[int, ...]
SENT = (1, 2, 4, 8)  # MiB
BESIDE = 3  # products, which outlast the copies beside them
SMALL = 16  # elements


class Trial:
    """The schedule copy_engine with any cut."""

    def __init__(self, problem: Any, space: Any, a: torch.Tensor, b: torch.Tensor, waves: Waves):
        self.team, self.first = problem.team, rows_of(problem, problem.me)[0]
        self.pieces = [(i, j) for i, j in cut(*rows_of(problem, problem.me), waves) if i < j]
        self.multiply = [multiply(problem, a[i - self.first : j - self.first], b, i, 0) for i, j in self.pieces]
        self.begin, self.gate = beginner(problem, space["words"]), Side()
        self.sides = {pe: Side() for pe in peers_of(problem.team)}
        self.last = slice(*self.pieces[-1])
        sample = space["result 0"][self.last]
        self.send = sender(problem, space["words"], sample, sample)

    def products(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Iterator[tuple[int, int]]:
        """Enqueue the product of each piece, and yield the piece."""
        for (i, j), step in zip(self.pieces, self.multiply, strict=True):
            step(a[i - self.first : j - self.first], b, out[i:j])
            yield i, j

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        with self.gate.after():
            self.begin()
            ready = self.gate.mark()
        for i, j in self.products(a, b, out):
            for pe, side in self.sides.items() if (i, j) != self.pieces[-1] else ():
                with side.after():
                    await_mark(ready)
                    put_rows(self.team, out, i, j, pe)
        for side in (self.gate, *self.sides.values()):
            side.join()
        self.send(out[self.last], out[self.last])


class Operations(ops.Operations):
    """Parts and wholes of one shape."""

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(accelerator, True)
        self.space: Any = None

    def release(self) -> None:
        self._meet()
        if self.space is not None:
            self.space.close()
        self.space = None
        super().release()

    def _prepared(self, *sizes: int) -> tuple[ops.Problem, Any, torch.Tensor]:
        """The operands, their problem as the library sees it, and the result."""
        given = self._problem("gemm_all_gather", "rows", *sizes)
        out = self._symmetric(torch.zeros(given.wanted.shape, dtype=DTYPE, device=self.accelerator.device))
        problem = problem_of("gemm_all_gather", given.a, given.b, None, "rows", {"schedule": "copy_engine"})
        self.space = workspace_of(problem, words=((words_of(problem.n_pes),), torch.uint64))
        return given, choose(problem)[0], out

    def wholes(self, nbytes: int, trials: Sequence[Waves], *sizes: int) -> ops.Ways:
        """trials: cuts.  sizes: M, N and K."""
        given, problem, out = self._prepared(*sizes)
        ways: ops.Ways = {OURS: self._planned(given, out, {"schedule": "copy_engine"}), GEMM: self._alone(given)}
        ways["fused"] = self._able(given, out, {"schedule": "fused"})
        for waves in trials:
            trial, name = Trial(problem, self.space, given.a, given.b, waves), ":".join(map(str, waves))
            ways[f"products {name}"] = self._part(lambda trial=trial: list(trial.products(given.a, given.b, out)))
            ways[name] = self._case(given, "", lambda trial=trial: trial(given.a, given.b, out), out)
        return ways

    def parts(self, nbytes: int, *sizes: int) -> ops.Ways:
        """What the GPU does beside and behind the products."""
        given, problem, out = self._prepared(*sizes)
        ways: ops.Ways = {OURS: self._planned(given, out, {"schedule": "copy_engine"}), ENGINE: self._engine(given)}
        for mib in SENT:
            ways[f"send {mib} MiB"] = self._sent(problem, out, (mib << 20) // DTYPE.itemsize)
        ways["meet"] = self._sent(problem, out, SMALL)
        return ways | self._starts(out) | self._beside(given, problem, out)

    def _part(self, step: Callable[[], object], calls: int = CALLS) -> Case:
        return Case("", step, lambda: "", GRAPH, calls, lead=LEAD, ahead=self.ahead)

    def _sent(self, problem: Any, out: torch.Tensor, count: int) -> Case:
        """The kernel that sends and meets, alone."""
        block = out[rows_of(problem, problem.me)[0] :].view(-1)[:count]
        send = sender(problem, self.space["words"], block, block)
        return self._part(lambda: send(block, block))

    def _starts(self, out: torch.Tensor) -> ops.Ways:
        """A small kernel, and the same with a small copy behind it on a side stream."""
        word, side, peer = torch.zeros(SMALL, device=out.device), Side(), (self.me + 1) % self.n
        row = self._symmetric(torch.zeros(SMALL, device=self.accelerator.device))

        def copy() -> None:
            word.zero_()
            with side.after():
                shmem.put(row, word, peer)
            side.join()

        return {"kernel": self._part(word.zero_), "kernel and copy": self._part(copy)}

    def _beside(self, given: ops.Problem, problem: Any, out: torch.Tensor) -> ops.Ways:
        """Products, and the same beside copies that end with the last of them, or later."""
        first, last = rows_of(problem, problem.me)
        result, side = torch.empty(last - first, problem.N, dtype=DTYPE, device=out.device), Side()
        turns = max(round(BESIDE * problem.flops / 650e12 / (problem.bytes_sent / 385e9)), 1)

        def together(copies: int) -> None:
            with side.after():
                for i, j in copies * cut(first, last, (1,) * 4):
                    for pe in peers_of(problem.team):
                        put_rows(problem.team, out, i, j, pe)
            for _ in range(BESIDE):
                given.multiply(given.a, given.b, result)
            side.join()

        counts = {f"{BESIDE} products": 0} | {f"beside {count} copies": count for count in (turns // 2, 2 * turns)}
        return {name: self._part(lambda copies=copies: together(copies), 2) for name, copies in counts.items()}
