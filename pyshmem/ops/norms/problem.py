"""What the operators that end in RMSNorm have in common: the checks of their arguments, and plans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import Team
from pyshmem.memory.arguments import is_number, symmetric_array
from pyshmem.ops import plans
from pyshmem.ops.checks import WITH_DOUBLE, require_array
from pyshmem.ops.descriptions import all_but, shared, symmetric
from pyshmem.ops.float8 import KIND, Scaled
from pyshmem.ops.machine import device
from pyshmem.ops.plans import Call, Request
from pyshmem.ops.results import InTurn, InTurnBySize
from pyshmem.ops.workspace import Wanted, room_for

MOST_HIDDEN = 65536  # a program holds a row
LEAST_READ = 256 << 10  # bytes of x, below which "auto" takes no schedule that reads it where it is
_BUT_ROWS = all_but(2, 8)  # rows of x and of the residual, which begins at word 6
Results = tuple[Any, torch.Tensor]  # out, a tensor or Scaled, and the new residual


class Given(NamedTuple):
    """The arrays of a call; None for results that are the plan's."""

    x: Any
    residual: Any
    weight: Any
    out: Any
    residual_out: Any
    scales: Any


class Problem(NamedTuple):
    """What a plan is made for.

    tokens: rows of x.  kept, made: rows of the residual and of out on this PE.  kind: the dtype of out.
    pulled: x is read where it is.  given: the caller has the results that peers write.
    """

    routine: str
    team: Team
    tokens: int
    kept: int
    made: int
    hidden: int
    dtype: torch.dtype
    kind: torch.dtype
    eps: float
    pulled: bool
    given: bool

    @property
    def room(self) -> int:
        """The rows of x that symmetric memory is made for: calls with as many tokens, or fewer down to half, share it."""
        return room_for(self.tokens)

    @property
    def largest(self) -> int:
        """The rows of the largest share of a room."""
        return -(-self.room // self.team.size)

    @property
    def results(self) -> Wanted:
        """The shape and dtype of each result."""
        found: Wanted = {"out": ((self.made, self.hidden), self.kind), "sums": ((self.kept, self.hidden), self.dtype)}
        return found | ({"scales": ((self.made,), torch.float32)} if self.kind == KIND else {})

    def spaces(self, names: tuple[str, ...]) -> Wanted:
        """Return symmetric memory for these results, which have a row for each token, twice, if they are the plan's."""
        if self.given:
            return {}
        roomy = {name: ((self.room, *shape[1:]), kind) for name, (shape, kind) in self.results.items() if name in names}
        return {f"{name} {parity}": each for parity in range(2) for name, each in roomy.items()}


class Plan(plans.Plan):
    """A schedule with its memory and kernel."""

    def __init__(
        self, problem: Problem, schedule: str, step: Callable[[Problem], Any], kin: Plan | None = None
    ) -> None:
        """step: makes the schedule of the problem.  kin: a plan of other numbers of rows in the same room."""
        self.problem, self.schedule, self.team, self.generation = problem, schedule, problem.team, job.generation
        self._none = kin._none if kin else torch.empty(1, dtype=torch.float32, device=device())
        serves = kin is not None and not kin.space.closed and kin.schedule == schedule
        self._step = kin._step.resized(problem) if kin and serves else step(problem)
        self.space = self._step.space.lent({})
        self._step.space.close()  # its plans keep the memory
        self._scaled, self._written = problem.kind == KIND, "out 0" in self.space
        self._private = kin._private if kin else InTurnBySize()  # results that no peer writes
        self._results = InTurn(self._own, self.space.room if self._written else self._private)
        row = problem.hidden * problem.dtype.itemsize
        own = problem.kept * row
        self._sizes = problem.tokens * row, own, problem.made * problem.hidden * problem.kind.itemsize, own  # of _NAMES

    def __call__(self, given: Given, reuse: bool) -> Results:
        """given: with the results, or without; then they are new arrays. reuse: they are two of the plan in turn."""
        x, residual, weight, out, sums, scales = given
        scaled, copied = self._scaled, out is None and self._written and not reuse  # peers write it
        if out is not None:
            _require_apart(self.problem.routine, (x, residual, out, sums), self._sizes)
        elif reuse or copied:
            out, sums, scales = self._results.take()
            sums = torch.empty_like(sums) if copied else sums
        else:
            out, sums, scales = self._fresh()
        if self._sizes[0]:
            codes = out.view(torch.uint8) if scaled else out  # numbers of 8 bits as kernels store them
            self._step(x, residual, weight, codes, sums, scales if scaled else self._none)
        if copied:
            out, scales = out.clone(), scales.clone() if scaled else None
        return Scaled(out, scales) if scaled else out, sums

    @property
    def title(self) -> str:
        """Its name in timelines."""
        return f"{self.problem.routine} by {self.schedule}"

    def rereads(self, given: Given, reuse: bool) -> int:
        """For timelines, the bytes that kernels of a call leave in memory for later ones of it."""
        copied = given.out is None and self._written and not reuse
        return self._step.bytes_reread + copied * (self._sizes[2] + 4 * self.problem.made * self._scaled)  # type: ignore[no-any-return]

    def _fresh(self) -> tuple[torch.Tensor, ...]:
        """Return new arrays for the results."""
        problem, where = self.problem, self._none.device
        out = torch.empty(problem.made, problem.hidden, dtype=problem.kind, device=where)
        sums = torch.empty(problem.kept, problem.hidden, dtype=problem.dtype, device=where)
        return out, sums, torch.empty(problem.made, device=where) if self._scaled else self._none

    def _own(self, parity: int) -> tuple[torch.Tensor, ...]:
        """Return the arrays that calls of this parity reuse, symmetric ones where peers write them."""
        found = []
        for name, (shape, kind) in self.problem.results.items():
            symmetric = self.space.get(f"{name} {parity}")
            new = symmetric is None
            found.append(self._private.of(name, parity, shape, kind) if new else symmetric[: shape[0]])
        return tuple(found) if self._scaled else (*found, self._none)


def given_of(x: Any, residual: Any, weight: Any, out: Any, residual_out: Any) -> Given:
    values, scales = out if isinstance(out, Scaled) else (out, None)
    return Given(x, residual, weight, values, residual_out, scales)


def tokens_of(given: Given) -> int:
    """Return the rows of x; -1 if it is no matrix."""
    x = given.x
    return x.shape[0] if isinstance(x, torch.Tensor) and x.dim() == 2 else -1


def call_of(
    routine: str, team: Team, given: Given, private: Any, options: tuple[Any, ...], reading: tuple[str, ...], *more: Any
) -> Call:
    """Return a call as Request has it: plans share memory that differ in rows alone, down to half of the most.

    private: what describes the arrays.  options: eps, schedule and out_dtype.  reading: as in pulled.  more: all else.
    """
    x, tokens = given.x, tokens_of(given)
    if tokens < 0:
        return Call(routine, id(team), ())
    kinds = room_for(tokens), x.shape[1], x.dtype, *shared(given.weight), given.scales is not None
    alike = *kinds, *options, pulled(x, options[1], reading), *more
    return Call(routine, id(team), alike, _private(given, private, options), tokens)


def _private(given: Given, private: Any, options: tuple[Any, ...]) -> Any:
    """Return what describes a call on this PE but for its numbers of rows; None for calls with results.

    private: what describes the arrays.
    """
    x, residual = given.x, given.residual
    if type(private) is not bytes or given.out is not None or x is None or residual is None:
        return None
    if x.dim() != 2 or residual.dim() != 2:
        return None
    return _BUT_ROWS(private), x.nbytes > LEAST_READ, *map(type, options)


def request_of(
    call: Call, team: Team, check: Any, given: Given, shapes: Callable[[int], tuple[int, int]], schedules: Any,
    choose: Callable[[Plan], str],
) -> Request:  # fmt: skip
    """Return the request for the plan of a call. call: as call_of returns.  check: as in Request.  shapes: as in checked.

    choose: returns the schedule, one of ``schedules``, by the plan of a call like this one.
    """
    x, residual, tokens = given.x, given.residual, call.lengths

    def resized(kin: Plan, kept: Any) -> Plan:
        problem, schedule = Problem(*kin.problem[:2], tokens, *shapes(tokens), *kin.problem[5:]), choose(kin)
        return Plan(problem, schedule, schedules[schedule], kin)

    def lasting() -> Any:
        return True if x.stride() == residual.stride() == (x.shape[1], 1) else None

    def fits() -> bool:
        return len(residual) == shapes(tokens)[0]

    return Request(call, team, check, fits=fits, lasting=lasting, resized=resized)


def checked(
    routine: str, given: Given, eps: Any, out_dtype: Any, shapes: Callable[[int], tuple[int, int]]
) -> torch.dtype:
    """Check the arguments, and return the dtype of out. shapes: the rows of the residual and of out, for those of x."""
    x, out = given.x, given.out
    require_array(routine, "x", x, {"tokens": None, "hidden": None}, WITH_DOUBLE)
    tokens, hidden = x.shape
    if not 1 <= hidden <= MOST_HIDDEN:
        refuse(ArgumentError, routine, "x", f"rows of {hidden} elements", f"1 to {MOST_HIDDEN}")
    kept, made = shapes(tokens)
    kind = _kind(routine, given, out_dtype)
    for name, array, rows, dtype in (
        ("residual", given.residual, kept, x.dtype), ("out", out, made, kind),
        ("residual_out", given.residual_out, kept, x.dtype),
    ):  # fmt: skip
        if array is not None or name == "residual":
            require_array(routine, name, array, (rows, hidden), (dtype,))
    if given.scales is not None:
        require_array(routine, "out.scales", given.scales, (made,), (torch.float32,))
    require_array(routine, "weight", given.weight, (hidden,), tuple(dict.fromkeys((x.dtype, torch.float32))))
    if not is_number(eps) or not 0 <= eps < math.inf:
        refuse(ArgumentError, routine, "eps", repr(eps), "a number, 0 or more")
    if (out is None) != (given.residual_out is None):
        missing = "out" if out is None else "residual_out"
        refuse(ArgumentError, routine, missing, "None", "an array, where the other result has one")
    return kind


def _kind(routine: str, given: Given, out_dtype: Any) -> torch.dtype:
    """The dtype of out: what is asked for, or that of what is given, or that of x."""
    dtype: torch.dtype = given.x.dtype
    if out_dtype not in (None, dtype, KIND):
        refuse(ArgumentError, routine, "out_dtype", repr(out_dtype), f"None, {dtype} or {KIND}")
    scaled = given.scales is not None
    if dtype is torch.float64 and (scaled or out_dtype == KIND):
        refuse(ArgumentError, routine, "out_dtype", f"{KIND} with {dtype}", "None: no kernel computes float64")
    if given.out is not None and (scaled if out_dtype == dtype else not scaled and out_dtype == KIND):
        wants = f"ops.Scaled, of {KIND} and scales, for that out_dtype alone"
        refuse(ArgumentError, routine, "out", type(given.out).__name__, wants)
    return KIND if scaled or out_dtype == KIND else dtype


def require_symmetric(routine: str, given: Given, names: tuple[str, ...]) -> None:
    """Errors: NotSymmetricError for a given result that peers write."""
    for name, array in (("out", given.out), ("residual_out", given.residual_out), ("out.scales", given.scales)):
        if name in names and array is not None:
            symmetric_array(routine, name, array)


def pulled(x: Any, schedule: Any, reading: tuple[str, ...]) -> bool:
    """Whether x is symmetric, so that peers can read it; False where no schedule asks for it. reading: those that do."""
    large = schedule == "auto" and isinstance(x, torch.Tensor) and x.nbytes > LEAST_READ
    return (large or schedule in reading) and symmetric(x)


def text_of(problem: Problem, given: Given, chosen: str, place: str) -> str:
    """What all PEs must have in common."""
    return (
        f"x: {problem.tokens} rows\nx: {problem.hidden} columns\nx: {problem.dtype}\nweight: {given.weight.dtype}\n"
        f"eps: {problem.eps}\nout_dtype: {problem.kind}\nschedule: {chosen}{place}\n"
        f"out: {'given' if problem.given else None}"
    )


_NAMES = "x", "residual", "out", "residual_out"
_APART = (2, 0), (2, 1), (2, 3), (3, 0), (3, 1)


def _require_apart(routine: str, arrays: tuple[torch.Tensor, ...], sizes: tuple[int, ...]) -> None:
    """Errors: ArgumentError if a result is in memory that is read, but for residual_out that is residual.

    arrays: those of _NAMES, of ``sizes`` bytes.
    """
    starts = [each.data_ptr() for each in arrays]
    for one, other in _APART:
        first, second = starts[one], starts[other]
        if first < second + sizes[other] and second < first + sizes[one]:
            if (one, other) == (3, 1) and first == second:
                continue
            refuse(ArgumentError, routine, _NAMES[one], f"memory of {_NAMES[other]}", "memory of its own")
