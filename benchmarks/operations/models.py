"""The operations of benchmarks.models: each operator by each schedule, beside torch's kernels with and without NCCL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch

import pyshmem as shmem
from benchmarks.gpu_kernels import read_all
from benchmarks.in_job import GRAPH, Case
from benchmarks.operations.attention import ENGINE, Attention
from benchmarks.operations.experts import EXCHANGED, Experts
from benchmarks.operations.moved_bytes import BYTES, MovedBytes
from benchmarks.operations.rivals import NCCL, ONE_SHOT, TWO_SHOT
from benchmarks.operations.sequences import Sequences
from benchmarks.operations.torch_models import EPS, add_and_norm, attention_and_gather
from benchmarks.operations.training import ALONE, OURS, Training
from pyshmem import ops
from pyshmem.ops.attention import decode as flash_decode
from pyshmem.ops.attention.decode_schedules import SCHEDULES as DECODE_SCHEDULES
from pyshmem.ops.attention.prefill_schedules import SCHEDULES as ATTENTION_SCHEDULES
from pyshmem.ops.norms import all_reduce_rms_norm
from pyshmem.ops.norms.schedules import SCHEDULES as NORM_SCHEDULES
from pyshmem.ops.training.schedules import SCHEDULES as GRADIENT_SCHEDULES

READING = "reading"
DTYPE = torch.bfloat16
CALLS = 16  # in a graph
ERROR = 1e-2  # of the norm. Rounding gives 3e-3
Ways = dict[str, "Case | str"]
Step = Callable[[], tuple[torch.Tensor, ...]]


class Operations(Training, Experts, Sequences, Attention, MovedBytes):
    """All PEs act. Arrays hold random numbers, of a generator that each PE can seed for any other."""

    peers = (
        OURS, *dict.fromkeys((*NORM_SCHEDULES, *DECODE_SCHEDULES, *GRADIENT_SCHEDULES, *ATTENTION_SCHEDULES)), ALONE,
        READING, BYTES, ENGINE, NCCL, EXCHANGED, ONE_SHOT, TWO_SHOT,
    )  # fmt: skip

    def release(self) -> None:
        """The plans' memory is symmetric, too."""
        self._meet()
        ops.clear()
        super().release()

    def rms_norm(self, nbytes: int, tokens: int, hidden: int, bounded: bool) -> Ways:
        """bounded: beside its bytes alone, by one shot."""
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
        if bounded:  # x is read to be sent and to be added, and what has arrived and the residual once
            ways[BYTES] = self.moved_bytes(x.nbytes, 3 * x.nbytes, 2 * x.nbytes)
        if self.rivals is None:
            return ways | dict.fromkeys((NCCL, ONE_SHOT, TWO_SHOT), self.reason)
        for name, way in self.rivals.reductions(x.numel()).items():
            ways[name] = (
                way if isinstance(way, str) else self._after(*way, parts[self.me], residual, weight, wanted, norm)
            )
        return ways

    def decode(
        self, nbytes: int, batch: int, tokens: int, heads: int, kv_heads: int, width: int, page: int = 0
    ) -> Ways:
        """tokens: of each sequence, over all PEs.  page: tokens of a page, for ours alone; 0: a cache without pages."""
        batch, mine = self.accelerator.cut(batch, 2), self.accelerator.cut(tokens // self.n, page or 40)
        heads, kv_heads = self.accelerator.cut(heads, 4), self.accelerator.cut(kv_heads, 2)
        shape = (batch, mine, kv_heads, width)
        every = [(self._random(2 * pe, *shape), self._random(2 * pe + 1, *shape)) for pe in range(self.n)]
        lengths = torch.full((batch,), mine, dtype=torch.int32, device=self.accelerator.device)
        q = self._random(1000, batch, heads, width)
        wanted = (flash_decode.reference(q, [(*pair, lengths) for pair in every]),)
        k, v = every[self.me]
        del every
        out, (keys, values, table) = [torch.empty_like(q)], self._in_pages(page, k, v)

        def ours(schedule: str) -> Step:
            call = {"out": out[0], "schedule": schedule, "block_table": table}
            return lambda: (ops.flash_decode(q, keys, values, lengths, **call),)

        ways: Ways = {}
        for name in (OURS, *DECODE_SCHEDULES):
            ways[name] = self._able(ours("auto" if name == OURS else name), out, wanted)
        ways[READING] = self._reading(k, v)
        if self.rivals is None:
            return ways | dict.fromkeys((ALONE, NCCL), self.reason)
        alone, both = attention_and_gather(self.rivals.dist, self.n, q, k, v)
        ways[ALONE] = Case("flash attention", alone, lambda: "", GRAPH, CALLS)
        return ways | {NCCL: self._case("flash attention; all_gather; sum", both, [], wanted)}

    def _in_pages(self, page: int, *caches: torch.Tensor) -> list[Any]:
        """The caches dealt to pages in random order, and the table of pages; without pages as they are, and None."""
        if not page:
            return [*caches, None]
        batch, tokens, *rest = caches[0].shape
        count = batch * tokens // page
        order = torch.randperm(count, generator=torch.Generator().manual_seed(1)).to(caches[0].device)
        table = order.argsort().view(batch, tokens // page).to(torch.int32)
        return [*(cache.view(count, page, *rest)[order] for cache in caches), table]

    def _reading(self, *arrays: torch.Tensor) -> Case:
        """All bytes of the arrays are read once, by a plain kernel."""
        programs, block = self.accelerator.cut(8 * 132, 1), 4096
        found = torch.zeros(programs * block, dtype=torch.int32, device=self.accelerator.device)
        kernel = self.accelerator.cached(read_all)

        def step() -> None:
            for array in arrays:
                words = array.view(torch.int32).view(-1)
                kernel((programs,), words, found, words.numel(), block, num_warps=8)

        def check() -> str:
            step()
            words = torch.zeros(block, dtype=torch.int32)
            for block_of_words in found.view(programs, block).cpu():
                words ^= block_of_words
            wanted = arrays[-1].view(torch.int32).view(-1).cpu().numpy()
            return (
                ""
                if numpy.bitwise_xor.reduce(words.numpy()) == numpy.bitwise_xor.reduce(wanted)
                else "not all is read; "
            )

        return Case("a kernel that reads k and v", step, check, GRAPH, self.accelerator.cut(CALLS, 1))

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
        return self._case("the operator", step, results, wanted)

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
