"""The gradients of attention by torch's own kernels: a call for the keys of each PE, with the sums of weights over all keys.

With these sums and the whole result, what a part of the keys gives to the gradients is exact. Those of the keys and
values of a peer go back to it while the next part is made. Idea: Ring Attention (Liu et al., arXiv 2310.01889).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from pyshmem.base.job import job
from pyshmem.host.teams import Team
from pyshmem.ops import plans
from pyshmem.ops.aligned import is_aligned
from pyshmem.ops.attention.gradients import Options
from pyshmem.ops.attention.prefill_library import Part, part_of
from pyshmem.ops.attention.prefill_slots import Exchange, Problem, Slots
from pyshmem.ops.descriptions import described, shared, typed
from pyshmem.ops.plans import Call, Request, plan_for, team_of
from pyshmem.ops.rows import OPERATORS

NAME = "attention_backward"
Arrays = tuple[torch.Tensor, ...]


class Plan(plans.Plan):
    """The memory for the gradients of a call."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.team, self.generation = problem, problem.team, job.generation
        self.slots = Slots(problem, back=True)
        self.space, self.exchange, me = self.slots.space, Exchange(self.slots), problem.me
        self.own, *self.parts = (part_of(problem, me, pe) for pe in (me, *self.exchange.peers))
        self.coming = [part_of(problem, pe, me) for pe in self.exchange.peers]  # what peers see of this PE's keys

    def __call__(self, gradient: torch.Tensor, *saved: torch.Tensor) -> Arrays:
        """Return the gradients of q, k and v. saved: q, k, v, the result and the sums of weights."""
        gradient, q, k, v, out, sums = (each if is_aligned(each) else each.clone() for each in (gradient, *saved))
        if not self.slots.room:
            return tuple(map(torch.empty_like, (q, k, v)))
        if self.exchange.peers:
            self.exchange.send(k, v)
        queries = gradient, q, out, sums
        found = self._of_part(self.own, queries, k, v) if self.own.used else tuple(map(torch.empty_like, (q, k, v)))
        if self.exchange.peers:
            found = self._of_peers(found, queries)
        return tuple(each.to(q.dtype) for each in found)

    def _of_peers(self, own: Arrays, queries: Arrays) -> Arrays:
        """Return this PE's gradients, with what peers' keys give to those of its queries, and peers' queries to others."""
        to_q, to_k, to_v = (each.float() for each in own)
        sent = []  # kept until the side stream has read them
        for part in self.parts:
            self.exchange.wait(part.pe, part.used)
            found: Arrays = ()
            if part.used:
                more, *found = self._of_part(part, queries, *self.slots.of(part.pe))
                to_q[:, part.start :] += more
            self.exchange.send_back(part.pe, found)
            sent.append(found)
        for pe, part in zip(self.exchange.peers, self.coming, strict=True):
            self.exchange.wait_back(pe, part.used)
            for total, room in zip((to_k, to_v), self.space["gradients"][pe], strict=True):
                if part.used:
                    seen = total[:, : part.stop]
                    seen += room[: seen.numel()].view(seen.shape)
        self.exchange.side.join()
        return to_q, to_k, to_v

    def _of_part(self, part: Part, queries: Arrays, k: torch.Tensor, v: torch.Tensor) -> Arrays:
        """Return the gradients of the queries that see a part, and of its keys and values."""
        gradient, q, out = (each[:, part.start :].transpose(1, 2) for each in queries[:3])
        keys, values = (each[:, : part.stop].transpose(1, 2) for each in (k, v))
        sums = queries[3][:, :, part.start :].contiguous()
        found = _by_torch(gradient, q, keys, values, out, sums, part.causal, self.problem.scale)
        return tuple(each.transpose(1, 2).contiguous() for each in found)


def gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gradient: torch.Tensor, out: torch.Tensor, sums: torch.Tensor, *,
    team: Team, **named: Any,
) -> Arrays:  # fmt: skip
    """Return the gradients of q, k and v from that of ``out``. sums: as Library.summed has returned them with it.

    named: the fields of Options.
    Collective over the team, on the current stream.
    """
    options = Options(**named)
    given = (gradient.contiguous(), q, k, v, out, sums)

    def check(team: Team) -> tuple[str, Any]:
        problem = problem_of(q, k, options, team)
        return "\n".join(f"q: {each}" for each in problem[1:]), partial(Plan, problem)

    def prepare() -> Request:
        group = team_of(NAME, team)
        return Request(Call(NAME, id(group), (*shared(q, k), *options)), group, check)

    call = NAME, id(team), typed(options), described(*given), None
    plan, _ = plan_for(call, prepare)
    return plan(*given)  # type: ignore[no-any-return]


OPERATORS[NAME] = gradients


def problem_of(q: torch.Tensor, k: torch.Tensor, options: Options, team: Team) -> Problem:
    """Return the problem of a call whose arguments have been checked."""
    (sequences, _, heads, width), size = q.shape, options.size
    scale, causal, segments = options.scale, options.causal, options.segments
    return Problem(team, sequences, size, heads, k.shape[2], width, q.dtype, scale, causal, segments)


def _by_torch(
    gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, sums: torch.Tensor,
    causal: bool, scale: float,
) -> Arrays:  # fmt: skip
    """Return the gradients of q, k and v, (batch, heads, tokens, dim), from sums that any of torch's kernels has made."""
    aten: Any = torch.ops.aten
    given, lengths = (gradient, q, k, v, out), (q.shape[2], k.shape[2])
    if not q.is_cuda:
        back = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return back(*given, sums, 0.0, causal, scale=scale)  # type: ignore[no-any-return]
    seed = _seed(q.device)
    if torch.version.hip or 1 in lengths:  # cuDNN 9 refuses a single query and key
        back, whole = aten._scaled_dot_product_flash_attention_backward, (None, None, *lengths, 0.0, causal)
        return back(*given, sums, *whole, seed, seed, scale=scale)  # type: ignore[no-any-return]
    back, whole = aten._scaled_dot_product_cudnn_attention_backward, (None, None, None, *lengths, 0.0, causal)
    return back(*given, sums.unsqueeze(3), seed, seed, *whole, scale=scale)  # type: ignore[no-any-return]


@cache
def _seed(device: torch.device) -> torch.Tensor:
    """Return what these kernels want though they drop nothing out."""
    return torch.zeros((), dtype=torch.int64, device=device)
