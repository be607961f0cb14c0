"""Tokens to experts on other PEs and their results back: what surrounds the experts of a mixture-of-experts layer.

Bytes that a PE gets from each peer, each way: a row for every token that has an expert there, however many. The dispatch
reads each of them once and writes a row for each expert; the combination reads a row for each expert.
Idea: DeepEP of DeepSeek, and expert parallelism as in GShard (arXiv 2006.16668), where capacities come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.memory.arguments import is_int
from pyshmem.ops import plans
from pyshmem.ops.checks import WITH_DOUBLE, require_array, require_own
from pyshmem.ops.checks import schedule_of as schedule_named
from pyshmem.ops.descriptions import all_but, described, typed
from pyshmem.ops.experts import gradients
from pyshmem.ops.experts.faults import faults
from pyshmem.ops.experts.schedules import SCHEDULES, Routing, Schedule, schedule_of
from pyshmem.ops.float8 import KIND, WIDE, Scaled
from pyshmem.ops.gradients import Gradients, differentiable, recorded, require_no_transform, require_none
from pyshmem.ops.machine import device, machine
from pyshmem.ops.plans import Call, Request, plan_for, team_of
from pyshmem.ops.results import InTurn
from pyshmem.ops.rows import OnTeam

NAME, BACK = "moe_dispatch", "moe_combine"
MOST_HIDDEN, MOST_EXPERTS, MOST_TOP = 16384, 1024, 32
INDICES = (torch.int32, torch.int64)
OVERFLOWS = ("error", "drop")
_BUT_TOKENS = all_but(2, 8, 14)  # the first lengths of three matrices, of six words each


class Handle(NamedTuple):
    """What moe_combine needs of a dispatch. indices, weights: its operands."""

    plan: Plan
    tokens: int
    routing: Routing
    indices: torch.Tensor
    weights: torch.Tensor


class Dispatched(NamedTuple):
    """What a PE gets for its experts: expert j has rows[offsets[j] : offsets[j + 1]], which are counts[j]."""

    rows: torch.Tensor | Scaled
    counts: torch.Tensor
    offsets: torch.Tensor
    handle: Handle


def moe_dispatch(
    x: torch.Tensor | Scaled, indices: torch.Tensor, weights: torch.Tensor, experts: int, capacity: int | None = None,
    tokens: int | None = None, overflow: Literal["error", "drop"] = "error", team: Team | None = None,
    schedule: Schedule = "auto", *, reuse: bool = False,
) -> Dispatched:  # fmt: skip
    """Return (rows, counts, offsets, handle): the rows of ``x`` of all PEs for this PE's experts, in the order of experts.

    x: (T, hidden) of bfloat16, float16, float32 or float64, contiguous as all operands, or a Scaled: so are rows then.
    indices: (T, top_k), int32 or int64, the experts of each, -1 for none.  weights: (T, top_k), float32, or float64 as x.
    experts: of all PEs, which have equal blocks of them: PE p of n has those from p * experts / n on.
    capacity: the rows of a result; None is enough unless a token lists an expert twice.  overflow: what is done with more:
        "error", which a later call of moe_dispatch or moe_combine, or finalize, raises, or "drop". Rows beyond are left out.
    tokens: the most that a PE has, in all calls; None: T of this call, which all PEs keep.  team: None is TEAM_WORLD.
    schedule: "auto", "words", "fused" or "bulk_synchronous".
    reuse: return one of two sets of arrays of the plan in turn, which the next call but one, on the same stream, overwrites.
    rows: (capacity, hidden), a copy for each expert, by PE and token for one.  counts, offsets: int32, (E,) and (E + 1,) of
        this PE's E experts. Rows behind the last offset hold anything.
    Order: collective over team, on torch's current stream. The host does not wait for the counts.
    Errors: ArgumentError, DtypeError, OutOfRangeError from a kernel, HeapExhaustedError, UnreachableError,
        NotInitializedError.
    Spec: none.
    """
    given = (x, indices, weights)
    plan = plan_of(given, experts, capacity, tokens, overflow, team, schedule)
    if not recorded(x):
        return plan.dispatch(*given, reuse=reuse)
    if reuse:
        require_none(NAME, "with reuse= it has no gradients", x=x)
    return plan.differentiable_dispatch(*given)


def moe_combine(
    rows: torch.Tensor, handle: Handle, out: torch.Tensor | None = None, *, reuse: bool = False
) -> torch.Tensor:
    """Return (T, hidden): for each token of moe_dispatch the sum of its experts' ``rows``, times its weights.

    rows: (capacity, hidden), contiguous, of x's dtype, bfloat16 where x was a Scaled: what the experts made of those of the
        dispatch, at the same places.
    handle: of a dispatch whose results still live.  out: (T, hidden); None: a new tensor.
    reuse: return one of two arrays of the plan in turn, which the next call but one, on the same stream, overwrites.
    Order: collective over the team, on torch's current stream. The sums of a PE's rows are made in float32 in the order of
        experts and rounded where they cross; those of PEs are added in their order. The same call gives the same bits.
    Errors: ArgumentError, DtypeError, OutOfRangeError from a kernel.
    Spec: none.
    """
    if not isinstance(handle, Handle):
        refuse(ArgumentError, BACK, "handle", type(handle).__name__, "the handle that moe_dispatch returned")
    require_no_transform(BACK, rows=rows)
    if recorded(rows, handle.weights):
        for name, value in (("out", out), ("reuse", reuse or None)):
            if value is not None:
                require_none(BACK, f"with {name}= it has no gradients", rows=rows, weights=handle.weights)
        return handle.plan.differentiable_combine(rows, handle)
    return handle.plan.combine(rows, handle, out, reuse)


def plan_of(
    given: tuple[Any, ...], experts: Any, capacity: Any, tokens: Any, overflow: Any, team: Team | None, schedule: Any
) -> Plan:
    """Return the plan of such a dispatch. given: x, indices and weights. The first call makes it, collectively over team."""
    x, indices, weights = given
    rows = tuple(x) if isinstance(x, Scaled) else (x,)
    require_no_transform(NAME, x=rows[0], weights=weights)
    options, private = (experts, capacity, tokens, overflow, schedule), described(*rows, indices, weights)
    call = NAME, id(TEAM_WORLD if team is None else team), typed(options), private, None
    return plan_for(call, _requested, team, given, rows, private, options)[0]  # type: ignore[no-any-return]


def _requested(
    team: Team | None, given: tuple[Any, ...], rows: tuple[Any, ...], private: Any, options: tuple[Any, ...]
) -> Request:
    """private: what describes the arrays of the call.  options: experts, capacity, tokens, and others."""
    group, kept, most = team_of(NAME, team), None, options[2]
    if type(most) is int and type(private) is bytes and len(rows) == 1 and all(each.dim() == 2 for each in given):
        kept = _BUT_TOKENS(private), *map(type, options)
    call = Call(NAME, id(group), (*_shared(rows, given[1], most), *options), kept)
    check = partial(_prepared, given, *options)

    def fits() -> bool:
        return bool(rows[0].shape[0] == given[1].shape[0] == given[2].shape[0] <= most)

    def lasting() -> Any:
        return True if kept and all(each.stride() == (each.shape[1], 1) for each in given) else None

    return Request(call, group, check, fits=fits, lasting=lasting)


def reference(
    operands: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], experts: int, me: int
) -> tuple[torch.Tensor, list[int]]:
    """Return the rows of PE ``me`` and how many each of its experts has. operands: x, indices and weights of all PEs."""
    local = experts // len(operands)
    rows, counts = [], []
    for expert in range(me * local, me * local + local):
        found = [x[(indices == expert).nonzero()[:, 0]] for x, indices, _ in operands]
        rows += found
        counts.append(sum(map(len, found)))
    return torch.cat(rows), counts


class Problem(NamedTuple):
    """What a plan is made for. room: the most tokens of a PE.  top: experts of a token.  local: experts of a PE.

    dtype: of results of experts and their sums.  kind: of the rows that experts get, as bits if they are numbers of 8 bits.
    scales: the shape of a row's scales, None if it has none.
    """

    team: Team
    room: int
    hidden: int
    top: int
    local: int
    capacity: int
    strict: bool
    dtype: torch.dtype
    kind: torch.dtype
    scales: tuple[int, ...] | None

    @property
    def wide(self) -> torch.dtype:
        """The dtype of weights, and of sums."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def scaled(self) -> bool:
        return self.scales is not None

    @property
    def each(self) -> int:
        """The scales of a row."""
        return 0 if self.scales is None else math.prod(self.scales)


class Plan(plans.Plan):
    """A schedule with its memory and kernels."""

    def __init__(self, schedule: str, wanted: dict[str, Any], tokens: int, capacity: int | None, team: Team) -> None:
        room = _most(team, tokens)
        capacity = room * min(wanted["top"], wanted["local"]) * team.size if capacity is None else capacity
        self.problem = problem = Problem(team, room, capacity=capacity, **wanted)
        self.schedule, self.team, self.generation = schedule_of(schedule, problem), team, job.generation
        self._step = SCHEDULES[self.schedule](problem, faults.words())
        self.space, n = self._step.space, team.size
        self._arrays = [  # those of a dispatch: rows, scales if there are some, counts, offsets, and the routing's
            partial(torch.empty, *shape, dtype=dtype, device=device())
            for shape, dtype in (
                ((capacity, problem.hidden), problem.kind),
                *([((capacity, *problem.scales), torch.float32)] if problem.scales is not None else []),
                ((problem.local,), torch.int32), ((problem.local + 1,), torch.int32),
                ((n * room, problem.top), torch.int32), ((n * room, problem.top), problem.wide), ((room, n), torch.int32),
            )
        ]  # fmt: skip
        self._accepted = set[Any]()  # what describes the operands of combinations that have been checked
        self._dispatched = InTurn(lambda parity: self.results())
        self._combined = InTurn(lambda parity: new(problem.dtype, problem.room, problem.hidden))

    def dispatch(
        self, x: torch.Tensor | Scaled, indices: torch.Tensor, weights: torch.Tensor, reuse: bool = False
    ) -> Dispatched:
        """reuse: the results are one of the plan's two sets of arrays in turn."""
        faults.raise_recorded()
        rows, *numbers, routing = self._dispatched.take() if reuse else self.results()
        tokens = len(indices)
        if self.problem.room:
            self._step.dispatch(tokens, _bits(x), indices, weights, _bits(rows), *numbers, *routing)
        return Dispatched(rows, *numbers, Handle(self, tokens, routing, indices, weights))

    def differentiable_dispatch(self, x: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> Dispatched:
        """Do what dispatch does, for autograd: rows behind those of experts are zeros."""
        made = []

        def perform(x: torch.Tensor) -> torch.Tensor:
            made.append(self.dispatch(x, indices, weights))
            return gradients.without_rest(made[0].rows, made[0].offsets)

        def back(saved: Any, needed: Any, gradient: torch.Tensor) -> Gradients:
            handle = made[0].handle
            return (gradients.of_dispatch(self._move(handle), handle.routing, gradient),)

        rows = differentiable(perform, back, x, kept=lambda operands, found: (), once=True)
        return made[0]._replace(rows=rows, handle=made[0].handle._replace(weights=weights))

    def differentiable_combine(self, rows: torch.Tensor, handle: Handle) -> torch.Tensor:
        """Do what combine does, for autograd, which also differentiates the weights of the dispatch."""

        def back(saved: Any, needed: Any, gradient: torch.Tensor) -> Gradients:
            experts = self.problem.local * self.team.size
            return gradients.of_combine(
                self._move(handle), handle.routing, saved[0], handle.indices, experts, gradient, needed[1]
            )

        return differentiable(  # type: ignore[no-any-return]
            lambda rows, weights: self.combine(rows, handle, None), back, rows, handle.weights, once=True
        )

    def _move(self, handle: Handle) -> gradients.Move:
        def dispatch(x: torch.Tensor) -> torch.Tensor:
            return self.dispatch(x, handle.indices, handle.weights).rows  # type: ignore[return-value]

        def combine(rows: torch.Tensor, routing: Routing) -> torch.Tensor:
            return self.combine(rows, handle._replace(routing=routing), None)

        return gradients.Move(dispatch, combine, OnTeam(self.team))

    def combine(
        self, rows: torch.Tensor, handle: Handle, out: torch.Tensor | None, reuse: bool = False
    ) -> torch.Tensor:
        faults.raise_recorded()
        problem, tokens = self.problem, handle.tokens
        if self.generation != job.generation or not self.team or self.space.closed:
            ended = "one of a team or an init that has ended, or of a plan that ops.clear has closed"
            refuse(ArgumentError, BACK, "handle", ended, "one of a live team and plan")
        like = described(rows, out), out is None or tokens
        if like not in self._accepted:
            for name, array, shape in (("rows", rows, problem.capacity), ("out", out, tokens)):
                if array is not None or name == "rows":
                    require_array(BACK, name, array, (shape, problem.hidden), (problem.dtype,))
            self._accepted.add(like)
        if out is None:
            out = self._combined.take()[:tokens] if reuse else new(problem.dtype, tokens, problem.hidden)
        else:
            require_own(BACK, out, rows=rows)
        if problem.room:
            self._step.combine(tokens, rows, *handle.routing, out)
        return out

    def results(self) -> tuple[Any, ...]:
        """Return new arrays for rows, counts, offsets, and the routing."""
        rows, *scales, counts, offsets, places, factors, hits = [make() for make in self._arrays]
        if not self.problem.room:  # no kernel counts
            counts.zero_()
            offsets.zero_()
        return Scaled(rows.view(KIND), *scales) if scales else rows, counts, offsets, Routing(places, factors, hits)


def _bits(rows: torch.Tensor | Scaled) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return rows as kernels move them, and their scales, if they have some."""
    return (rows.values.view(torch.uint8), rows.scales) if isinstance(rows, Scaled) else (rows, None)


def _shared(rows: tuple[Any, ...], indices: Any, tokens: Any) -> tuple[Any, ...]:
    """What a plan depends on of rows and indices: not on how many there are, where all PEs have room for ``tokens``.

    Each PE may have indices of either type.
    """
    first = 0 if tokens is None else 1
    kinds = [(each.shape[first:], each.dtype) for each in rows if isinstance(each, torch.Tensor)]
    return *kinds, indices.shape[first:] if isinstance(indices, torch.Tensor) else None


def _prepared(
    given: tuple[Any, ...], experts: Any, capacity: Any, tokens: Any, overflow: Any, schedule: Any, team: Team
) -> tuple[str, Any]:
    """Check the arguments and choose the schedule, as Request.check does."""
    x, indices, weights = given
    count, hidden, scales = _checked(x)
    require_array(NAME, "indices", indices, {"tokens": count, "top_k": None}, INDICES)
    top = indices.shape[1]
    if not 1 <= top <= MOST_TOP:
        refuse(ArgumentError, NAME, "indices", f"{top} experts of a token", f"1 to {MOST_TOP}")
    wide = torch.float64 if isinstance(x, torch.Tensor) and x.dtype is torch.float64 else torch.float32
    require_array(NAME, "weights", weights, (count, top), (wide,))
    if not is_int(experts) or not 1 <= experts <= MOST_EXPERTS or experts % team.size:
        wants = f"a multiple of the {team.size} PEs, 1 to {MOST_EXPERTS}"
        refuse(ArgumentError, NAME, "experts", repr(experts), wants)
    if capacity is not None and (not is_int(capacity) or capacity < 1):
        refuse(ArgumentError, NAME, "capacity", repr(capacity), "a number of rows, 1 or more, or None")
    if tokens is not None and (not is_int(tokens) or tokens < count):
        refuse(ArgumentError, NAME, "tokens", repr(tokens), f"at least this PE's {count} tokens, or None")
    if overflow not in OVERFLOWS:
        refuse(ArgumentError, NAME, "overflow", repr(overflow), " or ".join(OVERFLOWS))
    schedule = schedule_named(NAME, schedule, "auto", SCHEDULES, team, None if isinstance(x, Scaled) else x.dtype)
    wanted = {
        "hidden": hidden,
        "top": top,
        "local": experts // team.size,
        "dtype": x.dtype if scales is None else torch.bfloat16,
        "kind": x.dtype if scales is None else torch.uint8,
        "scales": scales,
        "strict": overflow == "error",
    }
    # PEs may have room for numbers of rows of their own
    lines = {"tokens": tokens, "schedule": schedule, **wanted, "multiprocessors": machine().programs}
    text = "\n".join(f"{name}: {value}" for name, value in lines.items())
    return text, partial(Plan, schedule, wanted, count if tokens is None else tokens, capacity, team)


def _checked(x: Any) -> tuple[int, int, tuple[int, ...] | None]:
    """Check the rows to send. Return how many there are, their elements, and the shape of a row's scales, None for none."""
    values, name, kinds = (x.values, "x.values", (KIND,)) if isinstance(x, Scaled) else (x, "x", WITH_DOUBLE)
    require_array(NAME, name, values, {"tokens": None, "hidden": None}, kinds)
    count, hidden = values.shape
    if not 1 <= hidden <= MOST_HIDDEN:
        refuse(ArgumentError, NAME, name, f"rows of {hidden} elements", f"1 to {MOST_HIDDEN}")
    if not isinstance(x, Scaled):
        return count, hidden, None
    blocks = -(-hidden // WIDE)
    many = isinstance(x.scales, torch.Tensor) and x.scales.dim() == 2
    require_array(NAME, "x.scales", x.scales, (count, blocks) if many else (count,), (torch.float32,))
    return count, hidden, tuple(x.scales.shape[1:])


def _most(team: Team, tokens: int) -> int:
    """The largest of all PEs' numbers. Collective over the team."""
    notes = team.meeting.share(NAME, tokens.to_bytes(8, "little").ljust(256, b"\0"))
    return max(int.from_bytes(note[:8], "little") for note in notes)


def new(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device=device())
