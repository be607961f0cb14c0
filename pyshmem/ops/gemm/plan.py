"""The plan of a product: what is decided and allocated once for calls of an operator with operands of the same shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_WORLD, Team, member, require_one_node
from pyshmem.memory.heap import views
from pyshmem.native._native import layout
from pyshmem.ops import autocast, descriptions, gradients, plans, rows
from pyshmem.ops.agreement import on_all, require_no_capture
from pyshmem.ops.descriptions import all_but, described
from pyshmem.ops.gemm import activations
from pyshmem.ops.gemm.gradients import FORMULAS
from pyshmem.ops.gemm.gradients import Options as OfGradients
from pyshmem.ops.gemm.graphs import Replayed
from pyshmem.ops.gemm.lengths import Lengths
from pyshmem.ops.gemm.memory import RESULTS
from pyshmem.ops.gemm.problem import (
    Order,
    Problem,
    Product,
    Schedule,
    Split,
    given,
    is_lined,
    layouts_of,
    lengths_of,
    problem_of,
    require_matrix,
    require_out,
    rows_of_all,
)
from pyshmem.ops.gemm.rereads import bytes_reread
from pyshmem.ops.gemm.scaling import NONE, Scales, are_whole, form_of, taken
from pyshmem.ops.gemm.selection import ABLE, require_known, steps_of
from pyshmem.ops.plans import Call, Request, plan_for
from pyshmem.ops.results import InTurn
from pyshmem.ops.shares import share_of
from pyshmem.ops.workspace import room_for

ONE_LAUNCH = ("fused", "workgroup_specialized")
_BUT_ROWS = all_but(3)  # those of a, which follows a result of None


class Plan(plans.Plan):
    """An operator with its schedule, memory and kernels: ``plan(a, b, out=None, scale_a=None, scale_b=None, reuse=False)``.

    schedule, order: the names chosen.  why: the reason.  flops, bytes_sent: of this PE in one call.
    bytes_reread: those that a kernel of a call leaves in this PE's memory for a later one of the same call.
    A plan serves operands of the shapes and types that it was made for; another layout compiles its kernels again, on this
    PE alone. It is valid until close, the team's destroy or the last finalize.
    """

    def __init__(
        self, problem: Problem, why: str, a: torch.Tensor, b: torch.Tensor, lengths: Lengths, layouts: Any = None
    ) -> None:
        """problem: with the schedule and the order that were chosen.  lengths: what it shares.  layouts: of a and b."""
        self.problem, self.why, self.lengths = problem, why, lengths
        self.schedule, self.order = problem.options.schedule, problem.options.order
        self.team, self.generation = problem.team, job.generation
        self._steps: dict[Any, Any] = {}  # by the layouts of a and of b.T, kept while the plan lives: graphs hold them
        self.space: Any = None  # its symmetric memory, which the first steps bring
        self._most = lengths.most(problem)
        self.steps(a, b, layouts)
        self._copied = problem.symmetric  # results that are not to be reused: peers write to the plan's array
        if not self._copied:
            self._new = partial(torch.empty, *problem.result, dtype=problem.dtype, device=a.device)
        self._results = InTurn(self._result, self.space.room if self._copied else lengths.private)
        self._accepted: dict[bytes, Any] = {}  # steps by the layouts of out, a, b and the scales

    @property
    def flops(self) -> int:
        return self.problem.flops

    @property
    def bytes_sent(self) -> int:
        return self.problem.bytes_sent

    @cached_property
    def bytes_reread(self) -> int:
        return bytes_reread(self.problem)

    @cached_property
    def title(self) -> str:
        """Its name in timelines."""
        return f"{self.problem.operator} by {self.schedule}"

    @cached_property
    def _result_bytes(self) -> int:
        return math.prod(self.problem.result) * self.problem.dtype.itemsize

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, scale_a: torch.Tensor | None = None,
        scale_b: torch.Tensor | None = None, reuse: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        """Enqueue a call on torch's current stream, and return its result. Errors: ArgumentError, DtypeError."""
        places = layout(views, out, a, b, scale_a, scale_b)
        scales = () if scale_a is None and scale_b is None else (scale_a, scale_b)
        steps = self._accepted.get(places)
        if steps is None or not plans.is_live(self):
            self.require(a, b, out, scales)
            steps = self.steps(a, b)
            if places is not None:
                self._accepted[places] = steps
        return self.perform(steps, a, b, out, scales, reuse)

    def require(self, a: Any, b: Any, out: Any, scales: tuple[Any, ...]) -> None:
        """Check the arguments of a call. Errors: ArgumentError, DtypeError, NotSymmetricError."""
        operator = self.problem.operator
        if not plans.is_live(self):
            refuse(ArgumentError, operator, "plan", "a plan that has ended", "one that is open, of a live team")
        problem = self.problem
        if descriptions.shared(a, b) != (
            ((problem.m, problem.k), problem.a.dtype),
            ((problem.k, problem.n), problem.b.dtype),
        ):
            wants = f"tensors of the shapes and types that {self!r} was made for"
            refuse(ArgumentError, operator, "a", f"{_spelled(a)}, with b {_spelled(b)}", wants)
        for name, value in (("a", a), ("b", b)):
            require_matrix(operator, name, value)
        scaled = self.problem.scaling != NONE
        if scaled is not bool(scales) or any(each is None for each in scales):
            given = zip(("scale_a", "scale_b"), scales or (None, None), strict=True)
            got = ", ".join(f"{'no' if each is None else 'a'} {name}" for name, each in given)
            wants = "scale_a and scale_b" if scaled else "no scales"
            refuse(ArgumentError, operator, "scale_a", got, f"{wants}, as the plan was made for")
        form = form_of(operator, a, b, scales)
        if form != self.problem.scaling:
            refuse(ArgumentError, operator, "scale_a", form, f"{self.problem.scaling}, as the plan was made for")
        if out is not None:
            require_out(self.problem, out)

    def steps(self, a: torch.Tensor, b: torch.Tensor, layouts: Any = None) -> Any:
        """Return what performs calls with operands of this layout. layouts: what layouts_of returns for a and b, if known.

        Errors: ArgumentError while a graph is captured.
        """
        layouts = layouts or layouts_of(a, b)
        found = self._steps.get(layouts)
        if found is None:
            require_no_capture(self.problem.operator)
            problem = self.problem
            if (problem.a, problem.b) != layouts[:2]:
                problem = problem._replace(a=layouts[0], b=layouts[1])
            made = self._most.steps(layouts, problem, a, b) if self._most else steps_of(problem, a, b, self.space)
            if self.space is None:
                self.space = self._most.lend(problem) if self._most else made.space
            found = self._steps[layouts] = made if self.schedule in ONE_LAUNCH else Replayed(made)
        return found

    def perform(
        self, steps: Any, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, scales: Scales, reuse: bool
    ) -> torch.Tensor:
        """Perform a call by ``steps``, and return its result: out, or the plan's array, or a new one."""
        if (a.requires_grad or b.requires_grad) and torch.is_grad_enabled():
            return self._differentiable(steps, a, b, out, scales, reuse)
        copied = out is None and self._copied and not reuse
        if out is None:
            out = self._results.take() if reuse or copied else self._new()
        steps(a, b, out, *scales)
        return out.clone() if copied else out

    def rereads(self, steps: Any, a: Any, b: Any, out: Any, scales: Scales, reuse: bool) -> int:
        """For timelines, of a call of perform: bytes_reread, and those of a result that is copied."""
        return self.bytes_reread + (self._result_bytes if out is None and self._copied and not reuse else 0)

    def _differentiable(
        self, steps: Any, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, scales: Scales, reuse: bool
    ) -> torch.Tensor:
        """Do what perform does, for operands that require gradients. Errors: ArgumentError if there is no formula."""
        problem = self.problem
        _require_plain(problem.operator, a, b, out, scales, reuse, problem.options.epilogue)
        chosen = problem.options
        options = OfGradients(chosen.size, chosen.columns, problem.split, chosen.gradient)

        def perform(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.perform(steps, a, b, None, scales, False)

        return _recorded(perform, problem.operator, self.team, options, a, b)

    def _result(self, parity: int) -> torch.Tensor:
        """Return the array that calls of this parity reuse."""
        problem = self.problem
        if problem.symmetric:
            return self.space[RESULTS[parity]]
        return self.lengths.private.of("result", parity, problem.result, problem.dtype)

    def close(self) -> None:
        """Free the plan's memory. Collective over the team; over all PEs if the team has all of them."""
        self.let_go()
        plans.drop_ended()

    def let_go(self) -> None:
        """Do what close does, and leave what finds the plan as it is."""
        if not self.space.closed and self.generation == job.generation:
            self.space.close()
        self._steps.clear()
        self._accepted.clear()
        self._results.clear()

    def __repr__(self) -> str:
        problem = self.problem
        sizes = f"{problem.M} x {problem.N} x {problem.K}"
        return f"<plan of {problem.operator}, {sizes} in {problem.dtype}: {self.schedule}, {self.order}>"


class _OnTeam(rows.OnTeam):
    """The same, and products."""

    def __call__(self, name: str, *operands: Any, **options: Any) -> torch.Tensor:
        if name not in ABLE:
            return super().__call__(name, *operands, **options)
        a, b = operands
        return call(name, a, b, None, self.team, None, "rows", options)


def _recorded(
    perform: Any, operator: str, team: Team, options: OfGradients, a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Return ``perform(a, b)``, a product, for autograd."""
    formula, performed = FORMULAS[operator], _OnTeam(team)

    def back(saved: Any, needed: Any, gradient: torch.Tensor) -> gradients.Gradients:
        return formula(performed, saved, needed, _lined(gradient), options)

    return gradients.differentiable(perform, back, a, b)  # type: ignore[no-any-return]


def _require_plain(
    operator: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, scales: Scales, reuse: bool,
    epilogue: Any,
) -> None:  # fmt: skip
    """Errors: ArgumentError where there is no formula for what a or b requires."""
    for name, value in (("out", out), ("reuse", reuse or None), ("epilogue", epilogue)):
        if value is not None:
            gradients.require_none(operator, f"with {name}= it has no gradients", a=a, b=b)
    if scales:
        gradients.require_none(operator, "products of 8-bit floats have no gradients", a=a, b=b)


def _lined(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix as products take it: gradients are often expanded scalars."""
    return matrix if is_lined(matrix) else matrix.contiguous()


def call(
    operator: str, a: Any, b: Any, out: Any, team: Team | None, plan: Plan | None, split: str, options: dict[str, Any],
    reuse: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Call an operator by the plan for these arguments. Errors: those of problem_of and of Plan."""
    scales = taken(options) if options else ()
    group = (plan.problem.team if type(plan) is Plan else TEAM_WORLD) if team is None else team
    key: Any = None
    if not autocast.enabled() and not gradients.transformed(a, b):
        shared = split, None if plan is None else id(plan), *options.items(), repr(options)
        key = operator, id(group), shared, described(out, a, b, *scales), None
        known = plans.ready(key)
        if known is not None:
            return known[0].perform(known[1], a, b, out, scales, reuse)  # type: ignore[no-any-return]
    if activations.apply(a, b) and out is None and plan is None and not scales:

        def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return call(operator, a, b, None, team, None, split, options, reuse)

        return activations.as_matmul(multiply, operator, a, b, group.size, options.get("size"), split)
    if gradients.transformed(a, b):
        _require_plain(operator, a, b, out, scales, reuse, options.get("epilogue"))
        each = {name: value for name, value in options.items() if name in OfGradients._fields}
        perform = partial(call, operator, out=None, team=team, plan=plan, split=split, options=options)
        return _recorded(perform, operator, group, OfGradients(split=split, **each), a, b)
    arguments = Given(operator, a, b, out, group, split, options, scales)
    found, steps = plan_for(key, _requested, arguments, plan, key and key[3])
    return found.perform(steps, a, b, out, scales, reuse)  # type: ignore[no-any-return]


class Given(NamedTuple):
    """The arguments of a call. options: by name, those that are not the defaults."""

    operator: str
    a: Any
    b: Any
    out: Any
    team: Team | None
    split: str
    options: Mapping[str, Any]
    scales: Scales


def _requested(given: Given, plan: Any, private: Any) -> Request:
    """plan: the one that was given, or None.  private: what describes out, a, b and the scales, or None."""
    operator, a, b, out, team, split, options, scales = given
    if plan is not None and type(plan) is not Plan:
        refuse(ArgumentError, operator, "plan", type(plan).__name__, "what ops.plan returned")
    group = member(operator, team)
    rows, sized, others = _rows(operator, a, group, split, options)
    call, like = Call(operator, id(group), (), lengths=rows), None
    if rows >= 0:
        fits = not sized or share_of(rows, group.me, group.size) == a.shape[0]
        if fits and out is None and type(private) is bytes and (not scales or are_whole(a, b, scales)):
            like = _BUT_ROWS(private), repr(others)
        call = call._replace(shared=_alike(a, b, split, rows, sized, others, scales), private=like)
    if plan is not None:
        _require_given(plan, given, call)
    wants = f"the same call on all PEs of the team (size= gives a length that {group.size} does not divide)"

    def lasting() -> Any:
        layouts = layouts_of(a, b)  # rows do not overlap, however many
        return layouts if layouts[0].along and layouts[0].pitch >= a.shape[1] else None

    def resized(kin: Plan, layouts: Any) -> Plan:
        return Plan(*kin.lengths.choose(rows, layouts), a, b, kin.lengths, layouts)

    return Request(
        call, group, partial(_checked, given), "a", wants, lasting=lasting, resized=resized,
        steps=lambda found, layouts: found.steps(a, b, layouts), plan=plan,
    )  # fmt: skip


def _require_given(plan: Plan, given: Given, call: Call) -> None:
    """Errors: ArgumentError, those of Plan, for a plan that does not take these arguments."""
    operator, a, b, out, *_, scales = given
    if plans.is_live(plan):
        if call.agreed() != plan.call:
            wants = "a plan of these operands and options"
            refuse(ArgumentError, operator, "plan", f"{plan!r} for other arguments", wants)
        plans.use(plan)
    plan.require(a, b, out, scales)


def _checked(given: Given, group: Team) -> tuple[Any, Any]:
    """Check the arguments and return what makes the plan, as Request.check does."""
    operator, a, b, out, _, split, options, scales = given
    require_one_node(operator, group)
    problem = problem_of(operator, a, b, group, split, options, scales)
    require_known(problem)
    if out is not None:
        require_out(problem, out)

    def maker(kin: Plan | None = None) -> Plan:
        aligned = kin.problem.aligned if kin else on_all(operator, group, problem.aligned)
        lengths = kin.lengths if kin else Lengths(problem._replace(aligned=aligned))
        return Plan(*lengths.choose(problem.M, layouts_of(a, b)), a, b, lengths)

    return partial(_text_of, problem), maker


def plan(
    operator: Product, a: torch.Tensor, b: torch.Tensor, team: Team | None = None, split: Split = "rows", *,
    schedule: Schedule = "auto", order: Order = "auto", epilogue: Any = None, size: int | None = None,
    columns: int | None = None, tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
    gradient: gradients.Gradient = "partial",
) -> Plan:  # fmt: skip
    """Return the plan that calls of ``operator`` with such arguments use, with kernels for these layouts, made ahead.

    operator: "gemm_all_gather", "all_gather_gemm", "gemm_reduce_scatter" or "gemm_all_reduce".
    Others: as in the call. a, b and their scales, scale_a and scale_b, are not read.
    Order: collective over team, and over all PEs if the team has all of them: it allocates memory.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    if operator not in ABLE:
        refuse(ArgumentError, "plan", "operator", repr(operator), "one of " + ", ".join(ABLE))
    options = given(
        schedule, order, epilogue, size, columns, tile, out_dtype, use_fast_accum, gradient, scale_a, scale_b
    )
    scales = taken(options)
    arguments = Given(operator, a, b, None, team, split, options, scales)
    return plan_for(None, _requested, arguments, None, described(None, a, b, *scales))[0]  # type: ignore[no-any-return]


def _rows(
    operator: str, a: Any, team: Team, split: str, options: Mapping[str, Any]
) -> tuple[int, bool, tuple[Any, ...]]:
    """Return the rows of the whole product, whether size gives them, and the options without such a size.

    The rows are -1 where a is no matrix, or size no number.
    """
    size = options.get("size")
    if not isinstance(a, torch.Tensor) or a.dim() != 2 or not (size is None or (type(size) is int and size >= 0)):
        return -1, False, ()
    rows, given = rows_of_all(operator, a, team, split, size)
    others = [each for each in options.items() if each[0] != "size"] if given else options.items()
    return rows, given, tuple(others)


def _alike(
    a: Any, b: Any, split: str, rows: int, given: bool, others: tuple[Any, ...], scales: Scales
) -> tuple[Any, ...]:
    """Return what plans have in common that differ in rows alone, down to half of the most; () for no matrix.

    It has nothing that is private to a PE, as layouts are. The arguments: of _rows, and what it returns.
    """
    if rows < 0:
        return ()
    forms = [are_whole(a, b, scales)] if scales else []  # of one alone it is private: a PE may have a single row
    return split, room_for(rows), given, a.shape[1], a.dtype, *descriptions.shared(b), *forms, *others


def _text_of(problem: Problem) -> str:
    """What all PEs must have in common: lines for require_alike, the lengths of operands first."""
    epilogue = problem.options.epilogue
    name = None if epilogue is None else epilogue.fn.__qualname__
    lines = [*lengths_of(problem), f"a: {problem.a.dtype}", f"b: {problem.b.dtype}", f"split: {problem.split}"]
    options = problem.options._replace(epilogue=name)._asdict()
    return "\n".join([*lines, f"scale_a: {problem.scaling}", *(f"{each}: {options[each]}" for each in options)])


def _spelled(operand: Any) -> str:
    if not isinstance(operand, torch.Tensor):
        return type(operand).__name__
    return f"{operand.dtype} of shape {tuple(operand.shape)}"


def clear() -> None:
    """Close all plans, which frees their memory.

    Order: collective over all PEs, which have made the same plans.
    Errors: NotInitializedError.
    Spec: none.
    """
    plans.clear()
