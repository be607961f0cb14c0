"""Plans: everything that is decided and allocated once for calls of an operator with the same arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.ops import agreement, schedules
from pyshmem.ops.configurations import device
from pyshmem.ops.kept import Kept
from pyshmem.ops.models import plans as models
from pyshmem.ops.problem import Problem, problem_of, require_out
from pyshmem.ops.replaying import Replayed
from pyshmem.ops.scaling import NONE, Scales, taken
from pyshmem.ops.selection import ABLE, choose
from pyshmem.ops.workspace import RESULTS
from pyshmem.runtime.arguments import require_init
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.heap import default
from pyshmem.runtime.job import job

MOST_PLANS = 64  # of a team
ONE_LAUNCH = ("fused", "workgroup_specialized")


class Plan:
    """An operator with its schedule, memory and kernels. ``plan(a, b, out=None, scale_a=None, scale_b=None)`` calls it.

    schedule, order: the names chosen.  why: the reason.  flops, bytes_sent: of this PE in one call.
    A plan serves operands of one shape, type and layout. It is valid until close, the team's destroy or the last finalize.
    """

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, key: tuple[Any, ...]) -> None:
        agreement.require_same(problem)
        self.problem, self.why = choose(problem)
        self.key, self.schedule, self.order = key, self.problem.options.schedule, self.problem.options.order
        self.flops, self.bytes_sent = problem.flops, problem.bytes_sent
        self._generation = job.generation
        self._steps: Any = schedules.steps_of(self.problem, a, b)
        self._call: Any = self._steps if self.schedule in ONE_LAUNCH else Replayed(self._steps)
        self._scaled = problem.scaling != NONE
        self._turn = 0
        self._results: list[torch.Tensor] = []
        self._layouts = _layouts(a, b)
        self.team, self._shape, self._dtype, self._device = (
            problem.team,
            torch.Size(problem.result),
            problem.dtype,
            device(),
        )
        self._nbytes = self._shape.numel() * problem.dtype.itemsize
        self._heap = default() if problem.symmetric else None

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, scale_a: torch.Tensor | None = None,
        scale_b: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Enqueue a call on torch's current stream, and return its result. Errors: ArgumentError, DtypeError."""
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _layouts(a, b) == self._layouts):
            wants = f"tensors of the shapes, types and layouts that {self!r} was made for"
            refuse(ArgumentError, self.problem.operator, "a", f"{_spelled(a)}, with b {_spelled(b)}", wants)
        return self.enqueue(a, b, out, scale_a, scale_b)

    def enqueue(
        self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, scale_a: torch.Tensor | None = None,
        scale_b: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Call the plan with operands like those it was made for."""
        if self._steps is None or self._generation != job.generation or not self.team:
            wants = "one that is open, of a live team"
            refuse(ArgumentError, self.problem.operator, "plan", "a plan that has ended", wants)
        if out is None:
            out = self._result()
        elif not self._takes(out):
            require_out(self.problem, out)
        if scale_a is None and scale_b is None and not self._scaled:
            self._call(a, b, out)
        elif scale_a is None or scale_b is None or not self._scaled:
            wants = "scale_a and scale_b" if self._scaled else "no scales"
            got = f"{'no' if scale_a is None else 'a'} scale_a, {'no' if scale_b is None else 'a'} scale_b"
            refuse(ArgumentError, self.problem.operator, "scale_a", got, f"{wants}, as the plan was made for")
        else:
            self._call(a, b, out, scale_a, scale_b)
        return out

    def _takes(self, out: Any) -> bool:
        """Whether ``out`` certainly passes require_out, at a fifth of its cost."""
        if type(out) is not torch.Tensor or out.shape != self._shape or out.dtype is not self._dtype:
            return False
        address, heap = out.data_ptr(), self._heap
        if address & 15 or not out.is_contiguous():
            return False
        return out.device == self._device if heap is None else heap.allocator.covers(address - heap.base, self._nbytes)

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


def _layouts(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
    """What a plan's kernels depend on of the operands. Errors: AttributeError for other objects."""
    aligned = a.data_ptr() & 15 == 0, b.data_ptr() & 15 == 0
    return (a.shape, a.stride(), a.dtype, b.shape, b.stride(), b.dtype, *aligned)


def _spelled(operand: Any) -> str:
    if not isinstance(operand, torch.Tensor):
        return type(operand).__name__
    odd = ", at an address that is no multiple of 16" if operand.data_ptr() & 15 else ""
    return f"{operand.dtype} of shape {tuple(operand.shape)} and strides {operand.stride()}{odd}"


_plans = Kept(MOST_PLANS, Plan.close)


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
    scales = taken(options)
    if plan is None:
        return find(operator, a, b, team, split, options, scales).enqueue(a, b, out, *scales)
    if type(plan) is not Plan:
        refuse(ArgumentError, operator, "plan", type(plan).__name__, "what ops.plan returned")
    if _key(operator, a, b, team or plan.problem.team, split, options, scales) != plan.key:
        refuse(ArgumentError, operator, "plan", f"{plan!r} for other arguments", "a plan of these operands and options")
    return plan.enqueue(a, b, out, *scales)


def find(
    operator: str, a: Any, b: Any, team: Team | None, split: str, options: Mapping[str, Any], scales: Scales
) -> Plan:
    """Return the plan for these arguments. The first call makes it, collectively over the team."""
    key = _key(operator, a, b, team, split, options, scales)
    try:
        found = _plans.live(key)
    except TypeError:  # an option that cannot be a key
        problem_of(operator, a, b, team, split, options, scales)  # says what is wrong
        raise
    if found is None or found._steps is None:
        found = _make(key, problem_of(operator, a, b, team, split, options, scales), a, b)
    return found


def plan(
    operator: str, a: torch.Tensor, b: torch.Tensor, team: Team | None = None, split: str = "rows", **options: Any
) -> Plan:
    """Return the plan that calls of ``operator`` with such arguments use, made ahead of the first call.

    operator: "gemm_all_gather", "all_gather_gemm", "gemm_reduce_scatter" or "gemm_all_reduce".
    a, b, team, split, options: as in the call. a, b and their scales, scale_a and scale_b, are not read.
    Order: collective over team, and over all PEs if the team has all of them: it allocates memory.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, NotInitializedError.
    Spec: none.
    """
    if operator not in ABLE:
        refuse(ArgumentError, "plan", "operator", repr(operator), "one of " + ", ".join(ABLE))
    scales = taken(options)
    return find(operator, a, b, team, split, options, scales)


def _make(key: tuple[Any, ...], problem: Problem, a: torch.Tensor, b: torch.Tensor) -> Plan:
    agreement.require_no_capture(problem.operator)
    agreement.require_near(problem.operator, problem.team)
    _plans.make_room(problem.team)
    made = _plans[key] = Plan(problem, a, b, key)
    return made


def _key(
    operator: str, a: Any, b: Any, team: Team | None, split: str, options: Mapping[str, Any], scales: Scales
) -> tuple[Any, ...]:
    """What a plan depends on. Errors: NotInitializedError, ArgumentError."""
    group = TEAM_WORLD if team is None else team
    try:
        places = _layouts(a, b)
        for each in scales:
            places += (each.shape, each.stride(), each.dtype, each.device, each.data_ptr() & 15 == 0)
        wires = group.meeting.wires
    except AttributeError:
        require_init(operator)
        problem_of(operator, a, b, team, split, options, scales)  # says what is wrong
        raise
    return (operator, split, *places, wires, job.generation, *options.items())


def clear() -> None:
    """Close all plans, which frees their memory.

    Order: collective over all PEs, which have made the same plans.
    Errors: NotInitializedError.
    Spec: none.
    """
    _plans.close_all()
    models.clear()
