"""Plans: everything that is decided and allocated once for calls of an operator with the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pyshmem.host.teams import TEAM_WORLD, Team, member, require_one_node
from pyshmem.ops import agreement
from pyshmem.ops import plans as models
from pyshmem.ops.gemm import schedules
from pyshmem.ops.gemm.graphs import Replayed
from pyshmem.ops.gemm.memory import RESULTS
from pyshmem.ops.gemm.problem import Problem, problem_of, require_out
from pyshmem.ops.gemm.scaling import NONE, Scales, taken
from pyshmem.ops.gemm.selection import ABLE, choose, require_known
from pyshmem.ops.kept import Kept
from pyshmem.ops.machine import device
from pyshmem.runtime._native import layout
from pyshmem.runtime.errors import ArgumentError, ShmemError, refuse
from pyshmem.runtime.heap import views
from pyshmem.runtime.job import job

MOST_PLANS = 64  # of a team
MOST_READY = 256
ONE_LAUNCH = ("fused", "workgroup_specialized")


class Plan:
    """An operator with its schedule, memory and kernels. ``plan(a, b, out=None, scale_a=None, scale_b=None)`` calls it.

    schedule, order: the names chosen.  why: the reason.  flops, bytes_sent: of this PE in one call.
    A plan serves operands of one shape, type and layout. It is valid until close, the team's destroy or the last finalize.
    """

    def __init__(self, problem: Problem, why: str, a: torch.Tensor, b: torch.Tensor, key: tuple[Any, ...]) -> None:
        """problem: with the schedule and the order that were chosen."""
        self.problem, self.why, self.key = problem, why, key
        self.schedule, self.order = problem.options.schedule, problem.options.order
        self.flops, self.bytes_sent = problem.flops, problem.bytes_sent
        self.team = problem.team
        self._generation = job.generation
        self._steps: Any = schedules.steps_of(self.problem, a, b)
        self._call: Any = self._steps if self.schedule in ONE_LAUNCH else Replayed(self._steps)
        self._turn = 0
        self._results: list[torch.Tensor] = []
        self._accepted: set[bytes] = set()  # layouts of out, a, b and the scales

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, scale_a: torch.Tensor | None = None,
        scale_b: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Enqueue a call on torch's current stream, and return its result. Errors: ArgumentError, DtypeError."""
        places = layout(views, out, a, b, scale_a, scale_b)
        scales = () if scale_a is None and scale_b is None else (scale_a, scale_b)
        if places not in self._accepted or not self.live:
            self.require(a, b, out, scales)
            if places is not None:
                self._accepted.add(places)
        return self._enqueue(a, b, out, scales)

    @property
    def live(self) -> bool:
        """Whether neither the plan nor its team nor the library has ended."""
        return self._steps is not None and self._generation == job.generation and self.team.size > 0

    def require(self, a: Any, b: Any, out: Any, scales: tuple[Any, ...]) -> None:
        """Check the arguments of a call. Errors: ArgumentError, DtypeError, NotSymmetricError."""
        operator = self.problem.operator
        if not self.live:
            refuse(ArgumentError, operator, "plan", "a plan that has ended", "one that is open, of a live team")
        scaled = self.problem.scaling != NONE
        if scaled is not bool(scales) or any(each is None for each in scales):
            given = zip(("scale_a", "scale_b"), scales or (None, None), strict=True)
            got = ", ".join(f"{'no' if each is None else 'a'} {name}" for name, each in given)
            wants = "scale_a and scale_b" if scaled else "no scales"
            refuse(ArgumentError, operator, "scale_a", got, f"{wants}, as the plan was made for")
        if _places(a, b, scales) != self.key[2]:
            wants = f"tensors of the shapes, types and layouts that {self!r} was made for"
            refuse(ArgumentError, operator, "a", f"{_spelled(a)}, with b {_spelled(b)}", wants)
        if out is not None:
            require_out(self.problem, out)

    def _enqueue(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, scales: Scales) -> torch.Tensor:
        if out is None:
            out = self._result()
        self._call(a, b, out, *scales)
        return out

    def _result(self) -> torch.Tensor:
        """One of two arrays in turn."""
        if not self._results:
            problem = self.problem
            if problem.symmetric:
                self._results = [self._steps.space[name] for name in RESULTS]
            else:
                self._results = [torch.empty(problem.result, dtype=problem.dtype, device=device()) for _ in RESULTS]
        self._turn ^= 1
        return self._results[self._turn]

    def close(self) -> None:
        """Free the plan's memory. Collective over the team; over all PEs if the team has all of them."""
        if self._steps is not None and self._generation == job.generation:
            self._steps.space.close()
        self._steps = self._call = None
        self._results = []

    def __repr__(self) -> str:
        problem = self.problem
        sizes = f"{problem.M} x {problem.N} x {problem.K}"
        return f"<plan of {problem.operator}, {sizes} in {problem.dtype}: {self.schedule}, {self.order}>"


_plans = Kept(MOST_PLANS, Plan.close)
_ready: dict[tuple[Any, ...], Plan] = {}  # by the arguments of calls that a plan has taken


def call(
    operator: str,
    a: Any,
    b: Any,
    out: Any,
    team: Team | None,
    plan: Plan | None,
    split: str,
    options: dict[str, Any],
) -> torch.Tensor:
    """Call an operator by the plan for these arguments. Errors: those of problem_of and of Plan."""
    scales = taken(options) if options else ()
    group = (plan.problem.team if type(plan) is Plan else TEAM_WORLD) if team is None else team
    asked = (operator, split, layout(views, out, a, b, *scales), id(group), *options.items())
    try:
        found = _ready.get(asked)
    except TypeError:  # an option that cannot be in a key
        found = find(operator, a, b, group, split, options, scales, out)  # says what is wrong
    if found is None or not found.live or (plan is not None and plan is not found):
        found = _required(operator, a, b, out, group, plan, split, options, scales)
        if len(_ready) >= MOST_READY:
            _ready.clear()
        if asked[2] is not None:
            _ready[asked] = found
    elif len(_plans) > 1:
        _plans.move_to_end(found.key)
    return found._enqueue(a, b, out, scales)


def _required(
    operator: str, a: Any, b: Any, out: Any, team: Team, plan: Plan | None, split: str, options: Mapping[str, Any],
    scales: Scales,
) -> Plan:  # fmt: skip
    """Return the plan for a call, which takes its arguments. Errors: those of problem_of and of Plan."""
    if plan is None:
        plan = find(operator, a, b, team, split, options, scales, out)
    elif type(plan) is not Plan:
        refuse(ArgumentError, operator, "plan", type(plan).__name__, "what ops.plan returned")
    elif _key(operator, a, b, team, split, options, scales) != plan.key:
        refuse(ArgumentError, operator, "plan", f"{plan!r} for other arguments", "a plan of these operands and options")
    plan.require(a, b, out, scales)
    return plan


def find(
    operator: str, a: Any, b: Any, team: Team | None, split: str, options: Mapping[str, Any], scales: Scales,
    out: Any = None,
) -> Plan:  # fmt: skip
    """Return the plan for these arguments. The first call makes it, collectively, and checks ``out``."""
    group = TEAM_WORLD if team is None else team
    key = _key(operator, a, b, group, split, options, scales)
    try:
        found = _plans.live(key)
    except TypeError:
        found = None  # an argument that cannot be in a key, which problem_of refuses
    if found is None or not found.live:
        group = member(operator, group)
        problem, why = choose(
            _agreed(operator, group, lambda: _described(operator, a, b, group, split, options, scales, out))
        )
        _plans.make_room(group)
        _plans.pop(key, None)  # one that has ended: the new one is not its successor in the order of use
        found = _plans[key] = Plan(problem, why, a, b, key)
    return found


def _agreed(operator: str, team: Team, describe: Callable[[], Problem]) -> Problem:
    """Return the problem that ``describe`` returns, if all PEs of the team have the same. Collective over the team.

    Its ``aligned`` is that of all PEs.
    Errors: those of ``describe`` on this PE; ArgumentError, on all PEs, if it refuses on another, or if problems differ.
    """
    problem, error, text = None, None, ""
    try:
        problem = describe()
        text = _text_of(problem)
    except ShmemError as refusal:
        error, text = refusal, str(refusal)
    wants = f"the same call on all PEs of the team (size= gives a length that {team.size} does not divide)"
    aligned = agreement.require_alike(operator, team, "a", text, wants, error, problem is not None and problem.aligned)
    assert problem is not None
    return problem._replace(aligned=aligned)


def _text_of(problem: Problem) -> str:
    """What all PEs must have in common."""
    epilogue = problem.options.epilogue
    name = None if epilogue is None else epilogue.fn.__qualname__
    options = problem.options._replace(epilogue=name)
    return (
        f"{problem.operator} {problem.split} of {problem.M} x {problem.N} x {problem.K} "
        f"of {problem.a.dtype} and {problem.b.dtype}, {problem.scaling}, {options}"
    )


def _described(
    operator: str, a: Any, b: Any, team: Team, split: str, options: Mapping[str, Any], scales: Scales, out: Any
) -> Problem:
    """Return the problem of a call that makes a plan. Errors: all that may be of one PE only."""
    agreement.require_no_capture(operator)
    require_one_node(operator, team)
    problem = problem_of(operator, a, b, team, split, options, scales)
    require_known(problem)
    if out is not None:
        require_out(problem, out)
    return problem


def plan(
    operator: str, a: torch.Tensor, b: torch.Tensor, team: Team | None = None, split: str = "rows", **options: Any
) -> Plan:
    """Return the plan that calls of ``operator`` with such arguments use, made ahead of the first call.

    operator: "gemm_all_gather", "all_gather_gemm", "gemm_reduce_scatter" or "gemm_all_reduce".
    a, b, team, split, options: as in the call. a, b and their scales, scale_a and scale_b, are not read.
    Order: collective over team, and over all PEs if the team has all of them: it allocates memory.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    if operator not in ABLE:
        refuse(ArgumentError, "plan", "operator", repr(operator), "one of " + ", ".join(ABLE))
    scales = taken(options)
    return find(operator, a, b, team, split, options, scales)


def _key(
    operator: str, a: Any, b: Any, team: Team, split: str, options: Mapping[str, Any], scales: Scales
) -> tuple[Any, ...]:
    """What a plan depends on. The plan keeps the team, whose id is not another's meanwhile."""
    return operator, split, _places(a, b, scales), id(team), *options.items()


def _places(a: Any, b: Any, scales: tuple[Any, ...]) -> tuple[Any, ...]:
    """How the operands lie in memory."""
    return tuple(
        (each.shape, each.stride(), each.dtype, each.device, each.data_ptr() & 15 == 0)
        if isinstance(each, torch.Tensor)
        else type(each)
        for each in (a, b, *scales)
    )


def _spelled(operand: Any) -> str:
    if not isinstance(operand, torch.Tensor):
        return type(operand).__name__
    odd = ", at an address that is no multiple of 16" if operand.data_ptr() & 15 else ""
    return f"{operand.dtype} of shape {tuple(operand.shape)} and strides {operand.stride()}{odd}"


def clear() -> None:
    """Close all plans, which frees their memory.

    Order: collective over all PEs, which have made the same plans.
    Errors: NotInitializedError.
    Spec: none.
    """
    _plans.close_all()
    _ready.clear()
    models.clear()
