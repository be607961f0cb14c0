"""reduce_scatter_rms_norm and its form with an all-gather by each schedule, beside NCCL's collectives and torch's norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.in_job import GRAPH, Case
from benchmarks.operations.rivals import NCCL
from benchmarks.operations.together import Together
from benchmarks.operations.torch_models import EPS, add_and_norm
from pyshmem import ops
from pyshmem.ops.norms import reduce_scatter_rms_norm as norm

OURS = "pyshmem"
DTYPE = torch.bfloat16
CALLS = 16  # in a graph
ERROR = 1e-2  # of the norm of a result
Step = Callable[[], tuple[torch.Tensor, ...]]
Ways = dict[str, "Case | str"]


class Sequences(Together):
    """Activations whose tokens the PEs divide; all of them have random numbers that any PE can make."""

    def shared_norm(self, nbytes: int, tokens: int, hidden: int, gathers: bool, scaled: bool) -> Ways:
        """scaled: the normalised rows are numbers of 8 bits."""
        operands, wanted = self._operands(tokens, hidden, gathers)
        x, residual, weight = operands
        operator = getattr(ops, norm.GATHER if gathers else norm.NAME)
        made = self._symmetric(
            torch.zeros(wanted[0].shape, dtype=torch.float8_e4m3fn if scaled else DTYPE, device=x.device)
        )
        out: Any = made if not scaled else ops.Scaled(made, self._symmetric(torch.zeros(len(made), device=x.device)))
        results = [out, torch.empty_like(residual)]

        def ours(schedule: str) -> Case:
            def step() -> Any:
                return operator(x, residual, weight, EPS, *results, schedule=schedule)

            return self._checked("the operator", step, wanted, scaled)

        ways: Ways = {name: ours("auto" if name == OURS else name) for name in (OURS, *norm.SHARES)}
        if self.rivals is None:
            return ways | {NCCL: self.reason}
        statement = "reduce_scatter_tensor; norm" + ("; all_gather_into_tensor" if gathers else "")
        return ways | {NCCL: self._checked(statement, self._theirs(*operands, gathers), wanted, False)}

    def _operands(
        self, tokens: int, hidden: int, gathers: bool
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """x, residual and weight of this PE, and both results in float64."""
        tokens, hidden = self.accelerator.cut(tokens, 2 * self.n), self.accelerator.cut(hidden, 64)
        parts = [self._random(pe, tokens, hidden) for pe in range(self.n)]
        residuals, weight = self._random(100, tokens, hidden).chunk(self.n), self._random(101, hidden)
        every = [norm.reference(parts, residuals[pe], weight, EPS, pe) for pe in range(self.n)]
        made = torch.cat([each[0] for each in every]) if gathers else every[self.me][0]
        operands = self._symmetric(parts[self.me]), residuals[self.me].clone(), weight
        return operands, (made, every[self.me][1])

    def _theirs(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, gathers: bool) -> Step:
        dist: Any = self.rivals and self.rivals.dist
        source, share = x.clone(), torch.empty_like(residual)
        every = torch.empty_like(x)
        compiled = torch.compile(add_and_norm, dynamic=False)

        def step() -> tuple[torch.Tensor, ...]:
            dist.reduce_scatter_tensor(share, source)
            made, kept = compiled(share, residual, weight)
            if gathers:
                dist.all_gather_into_tensor(every, made)
            return every if gathers else made, kept

        return step

    def _checked(self, statement: str, step: Any, wanted: tuple[torch.Tensor, ...], scaled: bool) -> Case:
        def check() -> str:
            """Three times the results, of which nothing of the time before is left."""
            wrong = ""
            for _ in range(self.accelerator.cut(3, 1)):
                self._meet()
                found = step()
                self._meet()
                made = found[0].to(torch.float64) if scaled else found[0].double()
                errors = [
                    ((each - right).norm() / right.norm()).item()
                    for each, right in zip((made, found[1].double()), wanted, strict=True)
                ]
                if not (errors[0] < (0.05 if scaled else ERROR) and errors[1] < ERROR):
                    wrong += f"PE {self.me}: errors of {errors}; "
                if scaled:
                    found[0].values.view(torch.uint8).fill_(0x7F)
                else:
                    found[0].fill_(float("nan"))
                found[1].fill_(float("nan"))
            return wrong

        return Case(statement, step, check, GRAPH, self.accelerator.cut(CALLS, 1))

    def _random(self, seed: int, *shape: int) -> torch.Tensor:
        generator = torch.Generator(self.accelerator.device).manual_seed(seed)
        return torch.randn(shape, device=self.accelerator.device, generator=generator).to(DTYPE)
