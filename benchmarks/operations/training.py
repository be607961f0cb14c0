"""What training and pipelines add to benchmarks.models: exposed communication of gradients, and activations on their way."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import pyshmem as shmem
from benchmarks.in_job import GRAPH, ITSELF, Case
from benchmarks.operations.rivals import NCCL
from benchmarks.operations.together import Together
from pyshmem import ops
from pyshmem.ops.training.schedules import SCHEDULES

OURS, ALONE = "pyshmem", "torch alone"
RESERVE = 3 << 27  # bytes, for two slots and the flags of every row's transfers
ERROR = 1e-2  # of the norm, in bfloat16
LEAST = 1e-6  # seconds: what is exposed may be less than the noise


class Block(torch.nn.Module):
    """The feed-forward half of a transformer's layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Training(Together):
    """Each reducer has one model; steps without communication run in no_sync."""

    reducers: tuple[Any, ...] = ()

    def release(self) -> None:
        self._meet()
        for each in self.reducers:
            each.close()
        self.reducers = ()
        super().release()

    def gradients(self, nbytes: int, layers: int, width: int, tokens: int) -> dict[str, Case | str]:
        """What a step (forward and backward) takes more than without communication; alone: the step without it."""
        layers, width, tokens = (self.accelerator.cut(*each) for each in ((layers, 2), (width, 16), (tokens, 8)))
        torch.manual_seed(1)
        model = torch.nn.Sequential(*(Block(width) for _ in range(layers)))
        model = model.to(self.accelerator.device, torch.bfloat16)
        torch.manual_seed(2 + self.me)
        x = torch.randn(tokens, width, device=self.accelerator.device).to(torch.bfloat16)
        wanted = self._averaged(model, x)
        self.reducers = tuple(ops.GradientReducer(model, schedule=name) for name in ("auto", *SCHEDULES))

        def quietly(used: Any = None) -> contextlib.ExitStack:
            """A context in which only one reducer works, or none."""
            stack = contextlib.ExitStack()
            for each in self.reducers:
                if each is not used:
                    stack.enter_context(each.no_sync())
            return stack

        def step(used: Any = None) -> None:
            with quietly(used):
                train(model, x)

        ways: dict[str, Case | str] = {}
        for name, each in zip((OURS, *SCHEDULES), self.reducers, strict=True):
            ways[name] = self._exposed("GradientReducer(model)", partial(step, each), step, model, wanted)
        ways[ALONE] = Case("forward and backward", lambda: self.accelerator.seconds(step, 1), lambda: "", ITSELF)
        if self.rivals is None:
            return ways | {NCCL: self.reason}
        theirs = copy.deepcopy(model)
        theirs.zero_grad()
        parallel = torch.nn.parallel.DistributedDataParallel(theirs, gradient_as_bucket_view=True)
        statement = "DistributedDataParallel(model, gradient_as_bucket_view=True)"
        return ways | {NCCL: self._exposed(statement, partial(train, parallel, x), step, theirs, wanted)}

    def activations(self, nbytes: int) -> dict[str, Case | str]:
        """There and back between PEs 0 and 1: each step has two transfers."""
        nbytes = self.accelerator.cut(nbytes, 4096)
        mine = torch.full((nbytes,), self.me + 1, dtype=torch.uint8, device=self.accelerator.device)
        got, peer = torch.zeros_like(mine), 1 - self.me
        team = shmem.TEAM_WORLD.split_strided(0, 1, 2) if self.n > 2 else shmem.TEAM_WORLD
        if self.n > 2 and not ops.reserve_bytes():
            ops.reserve(self.accelerator.cut(RESERVE, 1 << 20))

        def ours() -> None:
            calls = [lambda: ops.send_activations(mine, pe=peer, team=team)]
            calls.append(lambda: ops.recv_activations(got, pe=peer, team=team))
            for call in calls if self.me == 0 else reversed(calls):
                call()

        def check(step: Callable[[], None]) -> Callable[[], str]:
            def checked() -> str:
                got.zero_()
                self._meet()
                if self.me < 2:
                    step()
                self._meet()
                return "" if self.me > 1 or bool((got == peer + 1).all()) else f"PE {self.me}: other bytes came; "

            return checked

        calls = self.accelerator.cut(8, 1)
        ways: dict[str, Case | str] = {OURS: Case("send, recv", ours, check(ours), GRAPH, calls, 2, pes=(0, 1))}
        if self.rivals is None:
            return ways | {NCCL: self.reason}
        dist = self.rivals.dist

        def theirs() -> None:
            calls = [lambda: dist.send(mine, peer), lambda: dist.recv(got, peer)]
            for call in calls if self.me == 0 else reversed(calls):
                call()

        return ways | {NCCL: Case("dist.send, dist.recv", theirs, check(theirs), GRAPH, calls, 2, pes=(0, 1))}

    def _averaged(self, model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        """Some gradients averaged over all PEs, on the host's way."""
        train(model, x)
        held = [each.grad.float() for each in list(model.parameters())[:2] if each.grad is not None]
        for each in held:
            shmem.sum_reduce(each, each.clone())
            each /= self.n
        model.zero_grad()
        return held

    def _exposed(
        self, statement: str, step: Callable[[], None], alone: Callable[[], None], model: torch.nn.Module,
        wanted: list[torch.Tensor],
    ) -> Case:  # fmt: skip
        def taken() -> float:
            """One after the other, and in the reverse order, because clocks fall as a GPU gets warm."""
            _, *times = (self.accelerator.seconds(each, 1) for each in (alone, alone, step, step, alone))
            return max((times[1] + times[2] - times[0] - times[3]) / 2, LEAST)

        def check() -> str:
            wrong = ""
            for _ in range(2):
                step()
                self._meet()
                for (name, each), right in zip(model.named_parameters(), wanted, strict=False):
                    assert each.grad is not None
                    error = ((each.grad.float() - right).norm() / right.norm()).item()
                    wrong += "" if error < ERROR else f"PE {self.me}: {name} has an error of {error:.1e}; "
            return wrong

        return Case(f"{statement}: exposed", taken, check, ITSELF, 2, warm=2)


def train(model: torch.nn.Module, x: torch.Tensor) -> None:
    """Forward and backward."""
    model.zero_grad()
    model(x).float().square().mean().backward()
