"""attention by each schedule, beside torch's with and without NCCL's all-gather, on one GPU, and the copies alone."""

from __future__ import annotations

from collections.abc import Callable

import torch

import pyshmem as shmem
from benchmarks.in_job import GRAPH, Case
from benchmarks.operations.rivals import NCCL
from benchmarks.operations.together import Together
from benchmarks.operations.torch_models import attend_alone, gather_and_attend
from pyshmem import ops
from pyshmem.ops.attention.prefill import places_of, reference
from pyshmem.ops.attention.prefill_schedules import SCHEDULES
from pyshmem.ops.attention.segments import ORDERS, segments_of

OURS, ALONE, ONE, ENGINE = "pyshmem", "torch alone", "one GPU", "copy engine"
DTYPE = torch.bfloat16
CALLS = 4  # in a graph
CHECKED = 61  # one of so many queries is compared with float64
ERROR = 1e-2


class Attention(Together):
    """A sequence of random tokens; each PE can make those of any other."""

    def attention(
        self, nbytes: int, size: int, order: str, causal: bool, heads: int, kv_heads: int, width: int
    ) -> dict[str, Case | str]:
        """size: the tokens of the sequence on all PEs, which n must divide twice."""
        size, heads, kv_heads = (
            self.accelerator.cut(*each) for each in ((size, 8 * self.n), (heads, 2), (kv_heads, 1))
        )
        places = places_of(size, self.me, self.n, order).to(self.accelerator.device)
        queries = self._numbers(1, size, heads, width)
        q = queries[:, places].contiguous()
        keys, values = (self._numbers(seed, size, kv_heads, width) for seed in (2, 3))
        wanted = reference(q[:, ::CHECKED], places[::CHECKED], keys, values, causal)
        k, v = (each[:, places].contiguous() for each in (keys, values))
        out = torch.empty_like(q)

        def ours(schedule: str) -> Case:
            call = {"causal": causal, "out": out, "order": order, "schedule": schedule}
            return self._attended("ops.attention(q, k, v)", lambda: (ops.attention(q, k, v, **call),), wanted, out)

        ways: dict[str, Case | str] = {name: ours("auto" if name == OURS else name) for name in (OURS, *SCHEDULES)}
        ways[ENGINE] = self._sent(k, v)
        whole, every = attend_alone(queries, keys, values, causal), torch.arange(size, device=q.device)
        sampled = reference(queries[:, ::CHECKED], every[::CHECKED], keys, values, causal)
        ways[ONE] = self._attended("torch's attention of all tokens", whole, sampled, None)
        if self.rivals is None:
            return ways | dict.fromkeys((ALONE, NCCL), self.reason)
        segments = [segments_of(size, pe, self.n, ORDERS[order]) for pe in range(self.n)]
        alone, both = gather_and_attend(self.rivals.dist, q, segments, k, v, self.me, causal)
        ways[ALONE] = self._attended("flash attention of what is here", alone, wanted, None)
        return ways | {NCCL: self._attended("all_gather; cat; flash attention", both, wanted, None)}

    def _attended(
        self,
        statement: str,
        step: Callable[[], tuple[torch.Tensor, ...]],
        wanted: torch.Tensor,
        out: torch.Tensor | None,
    ) -> Case:
        def check() -> str:
            wrong = ""
            for _ in range(self.accelerator.cut(3, 1)):
                if out is not None:
                    out.fill_(float("nan"))
                self._meet()
                error = ((step()[0][:, ::CHECKED].double() - wanted).norm() / wanted.norm()).item()
                wrong += "" if error < ERROR else f"PE {self.me}: the result has an error of {error:.1e}; "
            return wrong

        return Case(statement, step, check, GRAPH, self.accelerator.cut(CALLS, 1))

    def _sent(self, *arrays: torch.Tensor) -> Case | str:
        """Send as many bytes as the operator does, to one peer after the other."""
        peers = [(self.me + i) % self.n for i in range(1, self.n)]
        if not peers:
            return "this PE sends nothing"
        targets = [self._symmetric(torch.zeros_like(array)) for array in arrays]

        def step() -> None:
            for pe in peers:
                for target, array in zip(targets, arrays, strict=True):
                    shmem.put_on_stream(target, array, pe)

        return Case("put_on_stream of k and v to all peers", step, lambda: "", GRAPH, self.accelerator.cut(CALLS, 1))

    def _numbers(self, seed: int, *shape: int) -> torch.Tensor:
        """A batch of one sequence."""
        generator = torch.Generator(self.accelerator.device).manual_seed(seed)
        return torch.randn((1, *shape), device=self.accelerator.device, generator=generator).to(DTYPE)
