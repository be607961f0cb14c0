"""moe_dispatch and moe_combine by each schedule, beside NCCL's all_to_all_single."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.in_job import EVENTS, GRAPH, Case
from benchmarks.operations.rivals import NCCL
from benchmarks.operations.together import Together
from benchmarks.operations.torch_experts import Rows
from pyshmem import ops
from pyshmem.ops.experts.operators import reference
from pyshmem.ops.experts.schedules import SCHEDULES

OURS, EXCHANGED = "pyshmem", "NCCL, counts too"
DTYPE = torch.bfloat16
CALLS = 16  # in a graph
ROOM = 1.125  # of a result, for the mean number of rows
ERROR = 1e-2
Ways = dict[str, "Case | str"]


class Experts(Together):
    """Rows of random tokens with ``top`` different experts of ``experts`` each."""

    def dispatch(self, nbytes: int, tokens: int, hidden: int, experts: int, top: int, scales: int = 0) -> Ways:
        """scales: of a token, whose elements have 8 bits then, by ours alone."""
        operands, experts, room = self._tokens(tokens, hidden, experts, top)
        if scales:
            operands = [(_eight_bits(x, self.accelerator.cut(scales, 1)), *lists) for x, *lists in operands]
        every = [[(part, *lists) for part in _parts(x)] for x, *lists in operands]
        wanted = [reference(each, experts, self.me) for each in zip(*every, strict=True)]

        def ours(schedule: str) -> Case:
            def step() -> Any:
                return ops.moe_dispatch(*operands[self.me], experts, room, schedule=schedule, reuse=True)

            def right() -> str:
                for _ in range(2):
                    for part in _parts(step().rows):
                        part.fill_(127)
                found = step()
                same = all(
                    found.counts.tolist() == counts and torch.equal(part[: len(rows)], rows)
                    for part, (rows, counts) in zip(_parts(found.rows), wanted, strict=True)
                )
                return "" if same else "rows or counts differ; "

            return self._timed("the operator", step, right)

        ways: Ways = {name: ours("auto" if name == OURS else name) for name in (OURS, *SCHEDULES)}
        if self.rivals is None or scales:
            return ways | dict.fromkeys((NCCL, EXCHANGED), "of rows of 16 bits alone" if scales else self.reason)
        theirs = Rows(self.rivals.dist, *operands[self.me], experts // self.n)
        moved = torch.cat([_of_experts(x, listed, experts // self.n, self.me) for x, listed, _ in operands])

        def same(step: Callable[[], torch.Tensor]) -> Callable[[], str]:
            return lambda: "" if torch.equal(step(), moved) else "rows differ; "

        ways[NCCL] = self._timed("index_select; all_to_all_single", theirs.dispatch, same(theirs.dispatch))
        counting = theirs.dispatch_and_count
        ways[EXCHANGED] = Case("the same, after sorting and the exchange of counts", counting, same(counting), EVENTS)
        return ways

    def combine(self, nbytes: int, tokens: int, hidden: int, experts: int, top: int) -> Ways:
        operands, experts, room = self._tokens(tokens, hidden, experts, top)
        x, listed, weights = operands[self.me]
        wanted = x.double() * weights.double().sum(1, keepdim=True)

        def close(step: Callable[[], torch.Tensor]) -> Callable[[], str]:
            def check() -> str:
                error = ((step().double() - wanted).norm() / wanted.norm()).item()
                return "" if error < ERROR else f"PE {self.me}: an error of {error:.1e}; "

            return check

        def ours(schedule: str) -> Case:
            found = ops.moe_dispatch(*operands[self.me], experts, room, schedule=schedule, reuse=True)
            rows, out = found.rows.clone(), torch.empty_like(x)

            def step() -> torch.Tensor:
                return ops.moe_combine(rows, found.handle, out)

            return self._timed("the operator", step, close(step))

        ways: Ways = {name: ours("auto" if name == OURS else name) for name in (OURS, *SCHEDULES)}
        if self.rivals is None:
            return ways | {NCCL: self.reason}
        theirs = Rows(self.rivals.dist, x, listed, weights, experts // self.n)
        theirs.dispatch()
        return ways | {NCCL: self._timed("all_to_all_single; weighted sum", theirs.combine, close(theirs.combine))}

    def _tokens(self, tokens: int, hidden: int, experts: int, top: int) -> tuple[Any, int, int]:
        """x, indices and weights of all PEs, the number of experts and the capacity."""
        cut = self.accelerator.cut
        tokens, hidden, experts, top = cut(tokens, 6), cut(hidden, 64), cut(experts, 4 * self.n), cut(top, 2)
        operands = []
        for pe in range(self.n):
            generator = torch.Generator(self.accelerator.device).manual_seed(pe)
            draw = {"device": self.accelerator.device, "generator": generator}
            x = torch.randn((tokens, hidden), **draw).to(DTYPE)
            listed = torch.rand((tokens, experts), **draw).argsort(1)[:, :top].to(torch.int32).contiguous()
            operands.append((x, listed, torch.rand((tokens, top), **draw)))
        return operands, experts, max(int(ROOM * tokens * top), 2 * tokens * top if tokens < 512 else 0)

    def _timed(self, statement: str, step: Callable[[], Any], right: Callable[[], str]) -> Case:
        def check() -> str:
            wrong = ""
            for _ in range(self.accelerator.cut(3, 1)):
                self._meet()
                wrong += right()
            return wrong

        return Case(statement, step, check, GRAPH, self.accelerator.cut(CALLS, 1))


def _eight_bits(x: torch.Tensor, scales: int) -> ops.Scaled:
    """Numbers of 8 bits near x, with scales that say whose they are."""
    own = torch.arange(len(x) * scales, dtype=torch.float32, device=x.device).view(len(x), scales)
    return ops.Scaled(x.to(torch.float8_e4m3fn), own)


def _parts(rows: torch.Tensor | ops.Scaled) -> tuple[torch.Tensor, ...]:
    """What can be compared of rows."""
    return (rows.values.view(torch.uint8), rows.scales) if isinstance(rows, ops.Scaled) else (rows,)


def _of_experts(x: torch.Tensor, listed: torch.Tensor, local: int, pe: int) -> torch.Tensor:
    """Rows of one PE's tokens for the experts of ``pe``."""
    order = torch.sort(listed.view(-1), stable=True).indices
    mine = order[listed.view(-1)[order] // local == pe]
    return x[mine // listed.shape[1]]
