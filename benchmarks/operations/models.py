"""The operations of benchmarks.models: each operator by each schedule, beside torch's kernels with and without NCCL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import pyshmem as shmem
from benchmarks.in_job import GRAPH, Case
from benchmarks.operations.rivals import NCCL, ONE_SHOT, TWO_SHOT
from benchmarks.operations.together import Together
from pyshmem import ops
from pyshmem.ops.models import all_reduce_rms_norm
from pyshmem.ops.models.norm_schedules import SCHEDULES as NORM_SCHEDULES

OURS, ALONE = "pyshmem", "torch alone"
DTYPE = torch.bfloat16
CALLS = 16  # in a graph
EPS = 1e-6
ERROR = 1e-2  # of the norm. Rounding gives 3e-3
Ways = dict[str, "Case | str"]
Step = Callable[[], tuple[torch.Tensor, ...]]


class Operations(Together):
    """All PEs act. Arrays hold random numbers, of a generator that each PE can seed for any other."""

    peers = (OURS, *NORM_SCHEDULES, ALONE, NCCL, ONE_SHOT, TWO_SHOT)

    def release(self) -> None:
        """The plans' memory is symmetric, too."""
        self._meet()
        ops.clear()
        super().release()

    def rms_norm(self, nbytes: int, tokens: int, hidden: int) -> Ways:
        tokens, hidden = self.accelerator.cut(tokens, 3), self.accelerator.cut(hidden, 64)
        parts = [self._random(pe, tokens, hidden) for pe in range(self.n)]
        residual, weight = self._random(100, tokens, hidden), self._random(101, hidden)
        wanted = all_reduce_rms_norm.reference(parts, residual, weight, EPS)
        x = self._symmetric(parts[self.me])
        results = [self._symmetric(torch.zeros_like(x)) for _ in wanted]

        def ours(schedule: str) -> Step:
            return lambda: ops.all_reduce_rms_norm(x, residual, weight, EPS, *results, schedule=schedule)

        ways: Ways = {}
        for name in (OURS, *NORM_SCHEDULES):
            ways[name] = self._able(ours("auto" if name == OURS else name), results, wanted)
        norm = add_and_norm if self.accelerator.interpreted else torch.compile(add_and_norm, dynamic=False)
        whole = torch.stack([part.double() for part in parts]).sum(0).to(DTYPE)
        ways[ALONE] = self._case("norm(sum, residual, weight)", lambda: norm(whole, residual, weight), [], wanted)
        if self.rivals is None:
            return ways | dict.fromkeys((NCCL, ONE_SHOT, TWO_SHOT), self.reason)
        for name, way in self.rivals.reductions(x.numel()).items():
            ways[name] = (
                way if isinstance(way, str) else self._after(*way, parts[self.me], residual, weight, wanted, norm)
            )
        return ways

    def _after(
        self, statement: str, reduce: Callable[[], Any], array: torch.Tensor, part: torch.Tensor, residual: torch.Tensor,
        weight: torch.Tensor, wanted: tuple[torch.Tensor, ...], norm: Callable[..., tuple[torch.Tensor, ...]],
    ) -> Case:  # fmt: skip
        """An all-reduce, in ``array`` or into a new one, then torch's kernel. Timed calls sum what was summed before."""

        def step() -> tuple[torch.Tensor, ...]:
            found = reduce()
            total = found if isinstance(found, torch.Tensor) else array
            return norm(total.view(residual.shape), residual, weight)

        def before() -> None:
            array.copy_(part.reshape(-1))

        return self._case(f"{statement}; norm", step, [], wanted, before)

    def _able(self, step: Step, results: list[torch.Tensor], wanted: tuple[torch.Tensor, ...]) -> Case | str:
        """The case, or the reason why the operator has no such schedule here."""
        try:
            step()
        except shmem.ShmemError as error:
            return str(error).split("\n", 1)[0]
        return self._case("ops.all_reduce_rms_norm(...)", step, results, wanted)

    def _case(
        self, statement: str, step: Step, results: list[torch.Tensor], wanted: tuple[torch.Tensor, ...],
        before: Callable[[], None] = lambda: None,
    ) -> Case:  # fmt: skip
        def check() -> str:
            """Not a number before, the results after, three times; ours with the same bits on all PEs."""
            wrong = ""
            for _ in range(self.accelerator.cut(3, 1)):
                for result in results:
                    result.fill_(float("nan"))
                before()
                self._meet()
                found = step()
                self._meet()
                for name, result, right in zip(("first", "second"), found, wanted, strict=False):
                    error = ((result.double() - right).norm() / right.norm()).item()
                    wrong += "" if error < ERROR else f"PE {self.me}: the {name} result has an error of {error:.1e}; "
            bits = [result.view(torch.int16).to(torch.int64).sum().item() for result in results]
            wrong += "" if len(set(map(tuple, self.comm.allgather(bits)))) == 1 else "PEs have different bits; "
            return wrong

        return Case(statement, step, check, GRAPH, self.accelerator.cut(CALLS, 1))

    def _random(self, seed: int, *shape: int) -> torch.Tensor:
        generator = torch.Generator(self.accelerator.device).manual_seed(seed)
        return torch.randn(shape, device=self.accelerator.device, generator=generator).to(DTYPE)


def add_and_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What torch's compiler makes one kernel of."""
    h = x.float() + residual.float()
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * weight.float()).to(x.dtype), h.to(x.dtype)
