"""Attention of long sequences, whose queries, keys and values are divided among the PEs by tokens.

Products of a PE: 4 * size * tokens * heads * dim operations for each sequence, half of them under a causal mask. Bytes that
it sends: its keys and values, 2 * tokens * kv_heads * dim elements, to every peer. Idea: Ring Attention (Liu et al.,
arXiv 2310.01889), with puts to all PEs and flags in place of a ring; zigzag order: Zhu's ring-flash-attention.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.ops import autocast, plans
from pyshmem.ops.attention import segments
from pyshmem.ops.attention.decode import MOST_WIDTH
from pyshmem.ops.attention.gradients import Options, gradients_of
from pyshmem.ops.attention.prefill_library import lacking, room_for_sums
from pyshmem.ops.attention.prefill_schedules import SCHEDULES, Schedule
from pyshmem.ops.attention.prefill_slots import NAME, Problem
from pyshmem.ops.attention.segments import ORDERS, Order, tokens_at
from pyshmem.ops.checks import WITH_DOUBLE, factor_of, require_array, require_own, schedule_of
from pyshmem.ops.descriptions import described, shared, typed
from pyshmem.ops.gradients import differentiable, recorded, require_none
from pyshmem.ops.machine import device
from pyshmem.ops.plans import Call, Request, plan_for, team_of
from pyshmem.ops.results import InTurn, InTurnBySize
from pyshmem.ops.rows import OnTeam


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None,
    out: torch.Tensor | None = None, team: Team | None = None, *, reuse: bool = False,
    schedule: Schedule = "auto", order: Order = "contiguous", size: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return softmax(``q`` @ keysᵀ * scale) @ values, like ``q``, for this PE's tokens, over the keys and values of all PEs.

    q: (batch, tokens, heads, dim).  k, v: (batch, tokens, kv_heads, dim); kv_heads divides heads. All are contiguous and of
        one dtype: bfloat16, float16, float32 or float64.  causal: a query sees no key after its own place in the sequence.
    scale: None is 1 / sqrt(dim).  out: like q, contiguous; None: a new tensor.
    reuse: return one of two arrays of the plan in turn, which the next call but one, on the same stream, overwrites.
    schedule: "auto", "library", "copy_engine" or "bulk_synchronous". library has torch's kernels: it refuses a scale of 0 or
        less, and on GPUs, with several PEs, all but 16 bits and heads of a multiple of 8, up to 128, elements.
    size: the tokens of a sequence on all n PEs, where n does not divide it.  order: "contiguous": PE p has segment p of n,
        or "zigzag": segments p and 2 n - 1 - p of 2 n, one behind the other, which makes work even under a causal mask. The
        first segments are longer by one.
    Order: collective over team, None is TEAM_WORLD, on torch's current stream.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    if autocast.enabled() and out is None:
        q, k, v = autocast.lowered(q, k, v)
    if recorded(q, k, v):
        for name, value in (("out", out), ("reuse", reuse or None)):
            if value is not None:
                require_none(NAME, f"with {name}= it has no gradients", q=q, k=k, v=v)
        return summed(q, k, v, causal, scale, team, schedule, order, size)[0]
    given = (q, k, v, out)
    return _plan(given, causal, scale, team, schedule, order, size)(*given, reuse)  # type: ignore[no-any-return]


def summed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float | None, team: Team | None,
    schedule: Any, order: Any, size: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return attention's result, and the logarithms of the sums of weights, (batch, heads, tokens), for its gradients.

    The latter are of one dimension and empty where torch's kernels do not give them.
    """
    if not recorded(q, k, v):
        found = _plan((q, k, v, None), causal, scale, team, schedule, order, size).summed(q, k, v)
        return found  # type: ignore[no-any-return]
    plain = partial(summed, causal=causal, scale=scale, team=team, schedule=schedule, order=order, size=size)
    group = TEAM_WORLD if team is None else team
    back = partial(gradients_of, OnTeam(group), options=options_of(q, causal, scale, order, size, group.size))
    return differentiable(plain, back, q, k, v, kept=lambda operands, found: (*operands, *found))  # type: ignore[no-any-return]


def _plan(
    given: tuple[Any, ...], causal: Any, scale: Any, team: Team | None, schedule: Any, order: Any, size: Any
) -> Any:
    """Return the plan of a call. given: q, k, v and out."""
    options = causal, scale, schedule, order, size
    call = NAME, id(TEAM_WORLD if team is None else team), typed(options), described(*given), None
    return plan_for(call, _requested, team, given, options)[0]


def _requested(team: Team | None, given: tuple[Any, ...], options: tuple[Any, ...]) -> Request:
    """options: causal, scale, schedule, order and size."""
    group, own = team_of(NAME, team), (*shared(*given[:2]), *options)
    alike = _alike(given, options, group.size)
    call = Call(NAME, id(group), alike, lengths=own) if alike else Call(NAME, id(group), own)
    return Request(call, group, partial(_checked, given, *options))


def _alike(given: tuple[Any, ...], options: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Return what plans have in common that share memory; () for none. n: the PEs of the team."""
    q, size = given[0], options[-1]
    if not isinstance(q, torch.Tensor) or q.dim() != 4 or not (size is None or type(size) is int):
        return ()
    whole = q.shape[1] * n if size is None else size
    k = [(each.shape[2], each.dtype) for each in given[1:2] if isinstance(each, torch.Tensor) and each.dim() == 4]
    return max(whole - 1, 0).bit_length(), q.shape[0], q.shape[2:], q.dtype, *k, *options[:-1], size is None


def options_of(q: torch.Tensor, causal: bool, scale: float | None, order: Order, size: int | None, n: int) -> Options:
    """Return what the gradients of a call depend on. n: the PEs of the team."""
    whole = q.shape[1] * n if size is None else size
    return Options(whole, ORDERS[order], causal, factor_of(NAME, scale, q.shape[3]))


def reference(
    q: torch.Tensor, places: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return the result of queries at ``places`` of the sequence in float64.  k, v: those of the whole sequence."""
    shared = q.shape[2] // k.shape[2]
    keys, values = (each.double().repeat_interleave(shared, 2) for each in (k, v))
    found = torch.einsum("bqhd,bkhd->bhqk", q.double(), keys) * (q.shape[3] ** -0.5 if scale is None else scale)
    if causal:
        found = found.masked_fill(torch.arange(k.shape[1], device=q.device) > places[:, None], float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", found.softmax(3), values)


def places_of(size: int, pe: int, n_pes: int, order: str) -> torch.Tensor:
    """Return the places in the sequence of the tokens that ``pe`` has."""
    return segments.places_of(size, pe, n_pes, ORDERS[order])


class Plan(plans.Plan):
    """A schedule with its memory and kernel."""

    def __init__(self, problem: Problem, schedule: str, shape: torch.Size, kin: Plan | None = None) -> None:
        """shape: of the result.  kin: a plan for sequences of another length."""
        self.problem, self.schedule, self.team, self.generation = problem, schedule, problem.team, job.generation
        self._new = partial(torch.empty, *shape, dtype=problem.dtype, device=device())
        self._private = kin._private if kin else InTurnBySize()
        self._results = InTurn(partial(self._result, shape), self._private)
        alike = kin._step.resized(problem) if kin and kin.schedule == schedule else None
        self._step = alike or SCHEDULES[schedule](problem)
        self.space = self._step.space
        self.title = f"{NAME} by {schedule}"  # in timelines

    def _result(self, shape: torch.Size, parity: int) -> torch.Tensor:
        return self._private.of("out", parity, shape, self.problem.dtype)

    def rereads(self, *given: Any) -> int:
        """For timelines, the bytes that kernels of a call leave in memory for later ones of it."""
        return self._step.bytes_reread if self._step.room and given[0].numel() else 0

    def __call__(self, q: Any, k: Any, v: Any, out: Any, reuse: bool) -> torch.Tensor:
        if out is not None:
            require_own(NAME, out, q=q, k=k, v=v)
        elif reuse:
            out = self._results.take()
        elif not (self._step.room and self._step.makes_results):
            out = self._new()
        return self._step(q, k, v, out) if self._step.room else out

    def summed(self, q: Any, k: Any, v: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Perform a call of this module's ``summed``."""
        if not sums_of(self.problem, self.schedule):
            return self(q, k, v, None, False), q.new_empty(0, dtype=torch.float32)
        return self._step.summed(q, k, v) if self._step.room else (self._new(), room_for_sums(q))


def _checked(
    given: tuple[Any, ...], causal: Any, scale: Any, schedule: Any, order: Any, size: Any, team: Team
) -> tuple[str, Any]:
    """Check the arguments and choose the schedule, as Request.check does."""
    q, k = given[:2]
    _require_operands(*given)
    if not isinstance(causal, bool):
        refuse(ArgumentError, NAME, "causal", repr(causal), "True or False")
    if not isinstance(order, str) or order not in ORDERS:
        refuse(ArgumentError, NAME, "order", repr(order), " or ".join(ORDERS))
    sequences, tokens, heads, width = q.shape
    whole = _whole(size, tokens, order, team)
    factor = factor_of(NAME, scale, width)
    problem = Problem(team, sequences, whole, heads, k.shape[2], width, q.dtype, factor, causal, ORDERS[order])
    chosen = _chosen(schedule, problem)
    text = (
        f"q: {sequences} sequences\nsize: {whole} tokens\norder: {order}\nq: {heads} heads\nq: {width} elements\n"
        f"q: {q.dtype}\nk: {k.shape[2]} heads\nscale: {factor}\ncausal: {causal}\nschedule: {chosen}"
    )
    return text, partial(Plan, problem, chosen, q.shape)


def sums_of(problem: Problem, schedule: str) -> bool:
    """Return whether calls by ``schedule``, "auto" or a name, give the sums of weights, by which gradients are made."""
    return _chosen(schedule, problem) == "library" and not lacking(problem, device(), True)


def _chosen(schedule: Any, problem: Problem) -> str:
    """Errors: ArgumentError, UnreachableError."""
    team, missing = problem.team, lacking(problem, device(), problem.n_pes > 1)
    measured = problem.n_pes == 1 or not torch.version.hip
    usual = "library" if measured and not missing else "copy_engine"
    if team.meeting.spans:
        usual = "bulk_synchronous"  # the others' puts do not reach PEs on other nodes
    chosen = schedule_of(NAME, schedule, usual, SCHEDULES, team, problem.dtype)
    if chosen == "library" and missing:
        refuse(ArgumentError, NAME, "schedule", f"'library' with {missing}", "auto, copy_engine or bulk_synchronous")
    return chosen


def _require_operands(q: Any, k: Any, v: Any, out: Any) -> None:
    """Errors: ArgumentError, DtypeError."""
    require_array(NAME, "q", q, {"batch": None, "tokens": None, "heads": None, "dim": None}, WITH_DOUBLE)
    sequences, tokens, heads, width = q.shape
    require_array(NAME, "k", k, {"batch": sequences, "tokens": tokens, "kv_heads": None, "dim": width}, (q.dtype,))
    require_array(NAME, "v", v, tuple(k.shape), (q.dtype,))
    kv_heads = k.shape[2]
    if not 1 <= width <= MOST_WIDTH:
        refuse(ArgumentError, NAME, "q", f"heads of {width} elements", f"1 to {MOST_WIDTH}")
    if not kv_heads or not heads or heads % kv_heads:
        refuse(ArgumentError, NAME, "k", f"{kv_heads} heads, with {heads} of q", "as many heads of q for each")
    if out is not None:
        require_array(NAME, "out", out, tuple(q.shape), (q.dtype,))


def _whole(size: Any, tokens: int, order: str, team: Team) -> int:
    """Return the tokens of a sequence on all PEs. Errors: ArgumentError."""
    whole = tokens * team.size if size is None else size
    if type(whole) is not int or whole < 0:
        refuse(ArgumentError, NAME, "size", repr(size), "the tokens of a sequence on all PEs, or None")
    wanted = tokens_at(whole, team.me, team.size, ORDERS[order])
    if wanted != tokens:
        wants = f"{wanted}: this PE's of {whole} in {order} order (size= gives those of all PEs)"
        refuse(ArgumentError, NAME, "q", f"{tokens} tokens", wants)
    return whole
