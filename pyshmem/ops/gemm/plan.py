"""The plan of a product: what is decided and allocated once for calls of an operator with operands of the same shapes.

Plans of products that differ in their rows alone, down to half of the most, share memory, kernels and agreements.
"""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.memory.heap import views
from pyshmem.native._native import layout
from pyshmem.ops import descriptions, plans
from pyshmem.ops.agreement import require_no_capture
from pyshmem.ops.gemm.copy_engine import adds_to_slots
from pyshmem.ops.gemm.gradients import Options, recorded_call, require_plain
from pyshmem.ops.gemm.problem import Problem, layouts_of, require_matrix, require_out, with_rows
from pyshmem.ops.gemm.scaling import NONE, Scales, form_of
from pyshmem.ops.gemm.selection import ordered, scheduled, steps_of, steps_that_serve
from pyshmem.ops.gemm.steps import RESULTS
from pyshmem.ops.results import InTurn, InTurnBySize
from pyshmem.ops.shares import share_of
from pyshmem.ops.streams import Replayed
from pyshmem.ops.workspace import Workspace, room_for

# A call is one launch, so that no graph is faster, and no kernel of it reads what an earlier one has written.
ONE_KERNEL = "fused"


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
            found = self._steps[layouts] = made if self.schedule == ONE_KERNEL else Replayed(made)
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
        require_plain(problem.operator, a, b, out, scales, reuse, problem.options.epilogue)
        chosen = problem.options
        options = Options(chosen.size, chosen.columns, problem.split, chosen.gradient)

        def perform(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.perform(steps, a, b, None, scales, False)

        return recorded_call(perform, problem.operator, self.team, options, a, b)

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


def _spelled(operand: Any) -> str:
    if not isinstance(operand, torch.Tensor):
        return type(operand).__name__
    return f"{operand.dtype} of shape {tuple(operand.shape)}"


class Most:
    """The steps for the most rows, of one schedule."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._made: dict[Any, Any] = {}  # by the layouts of a and b
        self._memory: Workspace | None = None
        self._lent: Workspace | None = None  # to the plan that was made last, which keeps the memory

    def serves(self, problem: Problem) -> bool:
        """Whether it has so many rows, and a plan keeps its memory."""
        return self._lent is not None and not self._lent.closed and self._problem.M >= problem.M

    def steps(self, layouts: Any, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> Any:
        """Return the steps of a problem that it serves. layouts: of a and b. Collective for the first of all."""
        found = self._made.get(layouts)
        if found is None:
            found = self._made[layouts] = steps_of(with_rows(problem, self._problem.M), a, b, self._memory)
            self._memory = found.space
        return found if problem.M == self._problem.M else found.resized(problem, a, b)

    def lend(self, problem: Problem) -> Workspace:
        """Return the memory for the plan of a problem."""
        results = dict.fromkeys(RESULTS, (problem.result, problem.dtype)) if problem.symmetric else {}
        assert self._memory is not None
        self._lent = self._memory.lent(results)
        self._memory.close()  # the plans keep it
        return self._lent


class Choice:
    """A schedule that the plans for some numbers of rows have, why, and the least and the most of these.

    problem: one with the schedule, and with the order that was chosen last.
    """

    def __init__(self, problem: Problem, why: str) -> None:
        self.problem, self.why, self.least, self.most = problem, why, problem.M, problem.M


class Lengths:
    """What plans share that differ in their rows alone. All PEs have the same ones, and none asks another about the next.

    private: results that calls return in turn and no peer writes.
    """

    def __init__(self, problem: Problem) -> None:
        """problem: of any of the plans, as it was asked for. Whether operands are aligned has been agreed on."""
        self.private = InTurnBySize()
        self._problem = problem
        self._choices: list[Choice] = []
        self._most: dict[tuple[str, str, bool], Most] = {}  # by schedule and order, and whether each PE may have rows
        most = room_for(problem.M)
        for rows in (min(most // 2 + 1, most), most):
            self.choose(rows, (problem.a, problem.b))

    def choose(self, M: int, layouts: Any) -> tuple[Problem, str]:
        """Do what selection.choose does for a problem of M rows in all. layouts: of a and b.

        The schedule that is right for two numbers of rows is right between them. Orders that stream tiles change more often.
        """
        for choice in self._choices:
            if choice.least <= M <= choice.most:
                break
        else:
            choice = self._choice(M, layouts)
        problem = with_rows(choice.problem, M, *layouts[:2])
        found, why = ordered(problem, self._problem.options.order, choice.why)
        if found.options is not problem.options:
            choice.problem = found  # most products have the order of the last one
        return found, why

    def _choice(self, M: int, layouts: Any) -> Choice:
        problem, why = scheduled(with_rows(self._problem, M, *layouts[:2]))
        for choice in self._choices:
            if (choice.problem.options.schedule, choice.why) == (problem.options.schedule, why):
                choice.least, choice.most = min(choice.least, M), max(choice.most, M)
                return choice
        self._choices.append(Choice(problem, why))
        return self._choices[-1]

    def most(self, problem: Problem) -> Most | None:
        """Return the steps that serve a problem whose schedule has been chosen; None if only its own do.

        The first ones are for its rows alone; if more rows come, the next ones are for as many as they may be.
        """
        key = problem.options.schedule, problem.options.order, problem.n_pes > problem.M
        found = self._most.get(key)
        if found is not None and found.serves(problem):
            return found
        if not steps_that_serve(problem):
            return None
        more = found is not None
        found = self._most[key] = Most(with_rows(problem, room_for(problem.M)) if more else problem)
        return found


def bytes_reread(problem: Problem) -> int:
    """The bytes of this PE's memory that a kernel or copy of a call writes, here or on a peer, and a later one reads.

    Bytes count once, however often they are read. A kernel that all PEs launch together is one. problem: with its schedule.
    """
    schedule = problem.options.schedule
    if schedule == ONE_KERNEL:
        return 0
    return _ELEMENTS[problem.operator](problem, schedule == "bulk_synchronous") * problem.sent.itemsize


def _gathered_product(problem: Problem, bulk: bool) -> int:
    """The product's own part, which is sent; columns are copied to the result, too."""
    columns = bulk and problem.split == "columns"
    return problem.m * problem.n if columns or problem.n_pes > 1 else 0


def _gathered_operand(problem: Problem, bulk: bool) -> int:
    """The rows of all PEs; those of this PE are multiplied where they are, but for bulk_synchronous, which copies them."""
    return (problem.M if bulk else problem.M - problem.m) * problem.K


def _scattered(problem: Problem, bulk: bool) -> int:
    """The parts, which are sent or added, and the slots, which are added. A product that adds to a slot needs no part."""
    own = share_of(problem.M, problem.me, problem.n_pes)
    parts = problem.M - own if not bulk and adds_to_slots(problem) else problem.M
    return (parts + (problem.n_pes - 1) * own) * problem.N


def _reduced(problem: Problem, bulk: bool) -> int:
    """The parts, which are reduced in place, and for an epilogue their sums."""
    return (int(problem.n_pes > 1) + int(problem.options.epilogue is not None)) * problem.M * problem.N


_ELEMENTS = {
    "gemm_all_gather": _gathered_product,
    "all_gather_gemm": _gathered_operand,
    "gemm_reduce_scatter": _scattered,
    "gemm_all_reduce": _reduced,
}
