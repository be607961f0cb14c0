"""The parts of a gemm_all_gather whose pieces the copy engine moves, each alone, and the whole by several cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import pyshmem as shmem
from benchmarks.accelerator import Accelerator
from benchmarks.in_job import GRAPH, ITSELF, Case
from benchmarks.operations import ops
from benchmarks.operations.ops import CALLS, DTYPE, ENGINE, GEMM, LEAD, OURS
from pyshmem.ops.copying import beginner
from pyshmem.ops.exchanges import peers_of, put_rows, rows_of, sender
from pyshmem.ops.libraries import multiply
from pyshmem.ops.problem import problem_of
from pyshmem.ops.rounds import words_of
from pyshmem.ops.schedules.copy_engine import cut
from pyshmem.ops.selection import choose
from pyshmem.ops.streams import Side, await_mark
from pyshmem.ops.workspace import workspace_of

Waves = tuple[int, ...]
SENT = (1, 2, 4, 8)  # MiB
BESIDE = 3  # products, which outlast the copies beside them
SMALL = 16  # elements


def name_of(waves: Waves, lanes: int = 1, last: str = "kernel") -> str:
    """Name a cut. lanes: streams of copies to a peer.  last: what sends the last piece."""
    return ":".join(map(str, waves)) + (f", {lanes} streams" if lanes > 1 else "") + (", engine" * (last == "engine"))


class Trial:
    """The schedule copy_engine with any cut. lanes: streams of copies to each peer, in turn.

    last: "kernel" sends the last piece and meets; with "engine" it only meets, behind a copy.
    """

    def __init__(self, problem: Any, space: Any, a: torch.Tensor, b: torch.Tensor, waves: Waves, lanes: int, last: str):
        self.team, self.first = problem.team, rows_of(problem, problem.me)[0]
        self.pieces = [(i, j) for i, j in cut(*rows_of(problem, problem.me), waves) if i < j]
        self.multiply = [multiply(problem, a[i - self.first : j - self.first], b, i, 0) for i, j in self.pieces]
        self.begin, self.gate = beginner(problem, space["words"]), Side()
        self.lanes = [{pe: Side() for pe in peers_of(problem.team)} for _ in range(lanes)]
        i, j = self.pieces[-1]
        self.last = slice(i, j) if last == "kernel" else slice(i, i + 1)
        self.copied = self.pieces if last == "engine" else self.pieces[:-1]
        sample = space["result 0"][self.last]
        self.send = sender(problem, space["words"], sample, sample)

    def products(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        for (i, j), step in zip(self.pieces, self.multiply, strict=True):
            step(a[i - self.first : j - self.first], b, out[i:j])

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        with self.gate.after():
            self.begin()
            ready = self.gate.mark()
        for number, ((i, j), step) in enumerate(zip(self.pieces, self.multiply, strict=True)):
            step(a[i - self.first : j - self.first], b, out[i:j])
            for pe, side in self.lanes[number % len(self.lanes)].items() if (i, j) in self.copied else ():
                with side.after():
                    await_mark(ready)
                    put_rows(self.team, out, i, j, pe)
        self.gate.join()
        for lane in self.lanes:
            for side in lane.values():
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

    def parts(
        self, nbytes: int, cuts: Sequence[Waves], more: Sequence[tuple[Waves, int, str]], *sizes: int
    ) -> ops.Ways:
        """cuts: tried as they are.  more: with their streams and what sends the last piece.  sizes: M, N and K."""
        given = self._problem("gemm_all_gather", "rows", *sizes)
        a, b = given.a, given.b
        out = self._symmetric(torch.zeros(given.wanted.shape, dtype=DTYPE, device=self.accelerator.device))
        problem = choose(problem_of("gemm_all_gather", a, b, None, "rows", {"schedule": "copy_engine"}))[0]
        self.space = workspace_of(problem, words=((words_of(problem.n_pes),), torch.uint64))
        ways: ops.Ways = {OURS: self._planned(given, out, {"schedule": "copy_engine"}), GEMM: self._alone(given)}
        ways |= {ENGINE: self._engine(given), "fused": self._able(given, out, {"schedule": "fused"})}
        for waves in cuts:
            trial = Trial(problem, self.space, a, b, waves, 1, "kernel")
            ways[f"products {name_of(waves)}"] = self._part(lambda trial=trial: trial.products(a, b, out))
        for mib in SENT:
            ways[f"send {mib} MiB"] = self._sent(problem, out, (mib << 20) // DTYPE.itemsize)
        ways["meet"] = self._sent(problem, out, SMALL)
        ways |= self._starts(out) | self._beside(given, problem, out)
        for waves, lanes, last in [*((each, 1, "kernel") for each in cuts), *more]:
            trial = Trial(problem, self.space, a, b, waves, lanes, last)
            ways[name_of(waves, lanes, last)] = self._case(given, "", lambda trial=trial: trial(a, b, out), out)
        return ways

    def _part(self, step: Callable[[], object], how: str = GRAPH, calls: int = CALLS) -> Case:
        return Case("", step, lambda: "", how, calls, lead=LEAD, ahead=self.ahead if how == GRAPH else 0.0)

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
        """The copies of all rows beside products, by one and by two streams to each peer; a product beside copies."""
        if self.accelerator.interpreted:
            return {}
        first, last = rows_of(problem, problem.me)
        peers, result = peers_of(problem.team), torch.empty(last - first, problem.N, dtype=DTYPE, device=out.device)
        lanes = [torch.cuda.Stream(priority=-1) for _ in range(2)]
        outlast = 1 + int(
            1.5 * BESIDE * (problem.flops / 650e12) / (problem.bytes_sent / 385e9)
        )  # copies, the products

        def copy(used: list[Any], turns: int) -> None:
            for number, (i, j) in enumerate(turns * cut(first, last, (1,) * (4 * len(used)))):
                with torch.cuda.stream(used[number % len(used)]):
                    for pe in peers:
                        put_rows(problem.team, out, i, j, pe)
            for lane in used[1:]:
                used[0].wait_stream(lane)

        def multiply_all() -> None:
            for _ in range(BESIDE):
                given.multiply(given.a, given.b, result)

        def together(used: list[Any], turns: int, of_copies: bool) -> float:
            """Seconds of a turn of copies, or of a product."""
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            main = torch.cuda.current_stream()
            for lane in used:
                lane.wait_stream(main)
            begin.record(used[0] if of_copies else main)
            multiply_all()
            copy(used, turns)
            end.record(used[0] if of_copies else main)
            torch.cuda.synchronize()
            return begin.elapsed_time(end) / 1e3 / (turns if of_copies else BESIDE)

        return {
            "copies beside products": self._part(lambda: together(lanes[:1], 1, True), ITSELF, 5),
            "copies by 2 streams beside products": self._part(lambda: together(lanes, 1, True), ITSELF, 5),
            "product beside copies": self._part(lambda: together(lanes[:1], outlast, False), ITSELF, 5),
        }
