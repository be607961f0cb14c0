"""The operations of benchmarks.ops: each operator by each schedule, beside torch's ways, and what bounds all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

import pyshmem as shmem
from benchmarks.accelerator import Accelerator
from benchmarks.in_job import EVENTS, GRAPH, ISSUE, Case
from benchmarks.operations import torch_products
from benchmarks.operations.bulk_copies import Copies
from benchmarks.operations.together import Together
from pyshmem import ops
from pyshmem.kernels.compiled import graph_launcher
from pyshmem.native._native import launch_graph
from pyshmem.ops.gemm.operators import REFERENCES
from pyshmem.ops.gemm.selection import ABLE
from pyshmem.ops.streams import ENQUEUED, Replayed

LAUNCH = "launch alone"
OURS, GEMM, ENGINE, NCCL, ASYNC = "pyshmem", "GEMM alone", "copy engine", "GEMM, then NCCL", "async TP"
BESIDE = "GEMM beside copies"  # which do not wait for each other, all begun at once
NOTHING = "no PE sends anything"
STREAMED = "fused, streamed_1"
DTYPE = torch.bfloat16
CALLS = 8  # in a graph
# graphs, and seconds without a clock, at least, before each sample: an idle GPU is faster at first
LEAD, AHEAD = 1, 0.01
EIGHT_BITS = torch.float8_e4m3fn
SCALES = 0.5, 2.0  # of all PEs, as torch's fused operators want
LARGEST = 32  # size of a matrix in the interpreter
ERROR = 1e-2  # of the norm. Rounding of parts and sums gives 3e-3, twice that in the interpreter; a missing row 1.5e-2
Ways = dict[str, "Case | str"]
Step = Callable[[], object]

# By operator and split: the lengths of a (rows, K) and of b (columns, K), and which of both are the same on all PEs.
_OPERANDS: Mapping[
    tuple[str, str], tuple[Callable[[int, int, int, int], tuple[tuple[int, int], tuple[int, int]]], str]
] = {
    ("gemm_all_gather", "rows"): (lambda M, N, K, n: ((M // n, K), (N, K)), "b"),
    ("gemm_all_gather", "columns"): (lambda M, N, K, n: ((M, K), (N // n, K)), "a"),
    ("all_gather_gemm", "rows"): (lambda M, N, K, n: ((M // n, K), (N // n, K)), ""),
    ("gemm_reduce_scatter", "rows"): (lambda M, N, K, n: ((M, K // n), (N, K // n)), ""),
    ("gemm_all_reduce", "rows"): (lambda M, N, K, n: ((M, K // n), (N, K // n)), ""),
}


class Problem(NamedTuple):
    """A call on this PE. every: the operands of all PEs.  a, b: its own.  wanted: the result, of sums in float64.

    scales: of a and b, where they are of 8 bits; otherwise there are none.
    """

    operator: str
    split: str
    every: list[tuple[torch.Tensor, torch.Tensor]]
    wanted: torch.Tensor

    a: torch.Tensor
    b: torch.Tensor
    scales: tuple[torch.Tensor, ...]

    def multiply(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """The library's product, into ``out``."""
        if self.scales:
            torch._scaled_mm(a, b, *self.scales, out_dtype=out.dtype, out=out)
        else:
            torch.matmul(a, b, out=out)


class Operations(Together):
    """All PEs act. Matrices hold random numbers, of a generator that each PE can seed for any other."""

    peers = (OURS, "fused", STREAMED, "copy_engine", "bulk_synchronous",
             GEMM, ENGINE, BESIDE, NCCL, ASYNC, LAUNCH)  # fmt: skip

    def __init__(self, accelerator: Accelerator, alone: bool) -> None:
        super().__init__(accelerator, alone)
        self.streams = [None if accelerator.interpreted else torch.cuda.Stream() for _ in range(self.n - 1)]

    def release(self) -> None:
        """The plans' memory is symmetric, too."""
        self._meet()
        ops.clear()
        super().release()

    def product(self, nbytes: int, operator: str, split: str, *sizes: int) -> Ways:
        """sizes: M, N and K of the whole product."""
        return self._ways(self._problem(operator, split, *sizes))

    def scaled_product(self, nbytes: int, operator: str, split: str, *sizes: int) -> Ways:
        """Do what product does, with 8-bit floats and a scale for each operand."""
        return self._ways(self._problem(operator, split, *sizes, dtype=EIGHT_BITS))

    def _ways(self, problem: Problem) -> Ways:
        out = self._symmetric(torch.zeros(problem.wanted.shape, dtype=DTYPE, device=self.accelerator.device))
        ways: Ways = {OURS: self._planned(problem, out, {})}
        for name, options in _options(problem.operator).items():
            ways[name] = self._able(problem, out, options)
        copies = self._copies(problem)
        ways[GEMM] = self._alone(problem)
        ways[ENGINE] = self._engine(copies)
        if "copy_engine" in ABLE[problem.operator] and problem.split == "rows":
            ways[BESIDE] = self._alone(problem, copies) if copies else NOTHING
        if self.rivals is None:
            return ways | {NCCL: self.reason, ASYNC: self.reason}
        for name, way, how in (
            (NCCL, torch_products.after_gemm(self.rivals, problem), GRAPH),
            (ASYNC, torch_products.at_once(self.rivals, problem), EVENTS),
        ):
            ways[name] = way if isinstance(way, str) else self._case(problem, *way, how=how)
        return ways

    def host_cost(self, nbytes: int, operator: str, split: str, *sizes: int) -> Ways:
        """What a call takes from the host, which finds the plan and does not wait for the GPU."""
        problem = self._problem(operator, split, *sizes)
        out = self._symmetric(torch.zeros(problem.wanted.shape, dtype=DTYPE, device=self.accelerator.device))
        call, more = getattr(ops, operator), {"split": split} if operator == "gemm_all_gather" else {}

        def step() -> object:
            return call(problem.a, problem.b, out=out, **more)

        ours = self._case(problem, f"ops.{operator}(a, b, out=out)", step, out)._replace(how=ISSUE, calls=20)
        return {OURS: ours, LAUNCH: self._launch(problem, step, **more)}

    def _launch(self, problem: Problem, step: Step, **more: str) -> Case | str:
        """The driver's launch of the graph that a call replays."""
        plan = ops.plan(problem.operator, problem.a, problem.b, **more)
        for _ in range(ENQUEUED + 1):
            step()
        steps = plan.steps(problem.a, problem.b)
        graphs = steps.handles() if isinstance(steps, Replayed) else []
        if not graphs:
            return "a call replays no graph here"
        stream, graph = torch.cuda.current_stream().cuda_stream, graphs[0]
        return Case("the launch alone", lambda: launch_graph(graph_launcher(), graph, stream), lambda: "", ISSUE, 20)

    # -- one peer's way each

    def _able(self, problem: Problem, out: torch.Tensor, options: dict[str, Any]) -> Case | str:
        """Return _planned's case, or the first line of why the operator has no such plan here or in this version."""
        try:
            return self._planned(problem, out, options)
        except (shmem.ShmemError, ModuleNotFoundError) as error:
            return str(error).split("\n", 1)[0]

    def _planned(self, problem: Problem, out: torch.Tensor, options: dict[str, Any]) -> Case:
        a, b = problem.a, problem.b
        plan = self._plan(problem, **options)
        return self._case(problem, f"{plan.schedule}, {plan.order}", lambda: plan(a, b, out, *problem.scales), out)

    def _plan(self, problem: Problem, **options: Any) -> ops.Plan:
        scales = dict(zip(("scale_a", "scale_b"), problem.scales, strict=False))
        return ops.plan(problem.operator, problem.a, problem.b, None, problem.split, **scales, **options)

    def _case(self, problem: Problem, statement: str, step: Step, result: torch.Tensor, how: str = GRAPH) -> Case:
        calls = self.accelerator.cut(CALLS if how == GRAPH else 3, 1)
        ahead = AHEAD if how == GRAPH else 0.0
        return Case(statement, step, lambda: self._wrong(problem, step, result), how, calls, lead=LEAD, ahead=ahead)

    def _alone(self, problem: Problem, copies: Copies | None = None) -> Case:
        """The library's product of what this PE multiplies, whoever has it. copies: what is sent meanwhile."""
        a, b = problem.a, problem.b
        if problem.operator == "all_gather_gemm":
            a = torch.cat([each for each, _ in problem.every])
        out = torch.empty(a.shape[0], b.shape[1], dtype=DTYPE, device=a.device)

        def check() -> str:
            out.fill_(float("nan"))
            factor = math.prod(each.item() for each in problem.scales)
            wrong = self._sent_wrong(copies, step)
            return wrong + self._far(out, a.double() @ b.double() * factor)

        def step() -> None:
            with copies.beside() if copies else nullcontext():
                problem.multiply(a, b, out)

        statement = ("torch._scaled_mm" if problem.scales else "torch.matmul") + (", put beside it" if copies else "")
        return Case(statement, step, check, GRAPH, CALLS, lead=LEAD, ahead=AHEAD)

    def _engine(self, copies: Copies | None) -> Case | str:
        """Send as many bytes as the operator does where it sends most, to all peers at once, on a stream for each."""
        if copies is None:
            return NOTHING

        def step() -> None:
            with copies.beside():
                pass

        return Case("put", step, lambda: self._sent_wrong(copies, step), GRAPH, CALLS, lead=LEAD, ahead=AHEAD)

    def _copies(self, problem: Problem) -> Copies | None:
        """As many bytes as the operator sends where it sends most; None if no PE sends anything."""
        count = max(self.comm.allgather(self._plan(problem).bytes_sent)) // max(self.n - 1, 1)
        if not count:
            return None
        on = {"dtype": torch.uint8, "device": self.accelerator.device}
        source = self._symmetric(torch.full((count,), Copies.value(self.me), **on))
        return Copies(source, self._symmetric(torch.zeros((self.n - 1, count), **on)), self.streams)

    def _sent_wrong(self, copies: Copies | None, step: Step) -> str:
        """Do a step, and return which bytes it did not bring."""
        if copies is None:
            step()
            return ""
        copies.forget()
        self._meet()
        step()
        self._meet()
        return copies.missing()

    # -- what they share

    def _problem(self, operator: str, split: str, *sizes: int, dtype: torch.dtype = DTYPE) -> Problem:
        shapes, same = _OPERANDS[operator, split]
        first, second = shapes(*(self.accelerator.cut(size, LARGEST) for size in sizes), self.n)
        every = []
        for pe in range(self.n):
            a = self._random(0 if same == "a" else 2 * pe, first).to(dtype)
            every.append((a, self._random(1 if same == "b" else 2 * pe + 1, second).to(dtype).T))
        reference = REFERENCES[operator]
        more = (split,) if operator == "gemm_all_gather" else ()
        scales: tuple[torch.Tensor, ...] = ()
        wanted = reference(every, self.me, *more)
        if dtype == EIGHT_BITS:
            scales = tuple(torch.tensor(each, device=self.accelerator.device) for each in SCALES)
            wanted *= math.prod(SCALES)
        return Problem(operator, split, every, wanted, *every[self.me], scales)

    def _random(self, seed: int, shape: tuple[int, int]) -> torch.Tensor:
        generator = torch.Generator(self.accelerator.device).manual_seed(seed)
        return (torch.randn(shape, device=self.accelerator.device, generator=generator) / 8).to(DTYPE)

    def _wrong(self, problem: Problem, step: Step, result: torch.Tensor) -> str:
        """Not a number before, the product after, three times; and, where all PEs get the same, with the same bits."""
        wrong = ""
        for _ in range(self.accelerator.cut(3, 1)):
            result.fill_(float("nan"))
            self._meet()
            given = step()
            self._meet()
            wrong = wrong or self._far(given if isinstance(given, torch.Tensor) else result, problem.wanted)
        if problem.operator in ("gemm_all_gather", "gemm_all_reduce"):
            bits = self.comm.allgather(result.view(torch.int16).to(torch.int64).sum().item())
            wrong += "" if len(set(bits)) == 1 else f"PE {self.me} sees different bits on the PEs; "
        return wrong

    def _far(self, result: torch.Tensor, wanted: torch.Tensor) -> str:
        error = ((result.double() - wanted).norm() / wanted.norm()).item()
        return "" if error < ERROR or not wanted.numel() else f"PE {self.me} has a relative error of {error:.1e}; "


def _options(operator: str) -> dict[str, dict[str, Any]]:
    """The options of the plans that a row compares, by peer."""
    found: dict[str, dict[str, Any]] = {name: {"schedule": name} for name in ABLE[operator]}
    if "fused" in found:
        found[STREAMED] = {"schedule": "fused", "order": "streamed_1"}
    return found
