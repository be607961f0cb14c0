"""The sum of all PEs' parts of activations, the residual, and RMSNorm: what follows a row-parallel layer.

Bytes that a PE gets from its peers: all rows of each; with schedule "two_shot" its share of them, and twice the other rows.
The sum is rounded to the type of x, as an all-reduce rounds it; all else is computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

import pyshmem as shmem
from pyshmem.host.teams import Team
from pyshmem.ops.configurations import device, machine
from pyshmem.ops.models import plans
from pyshmem.ops.models.norm_schedules import SCHEDULES, has_words
from pyshmem.ops.models.plans import DTYPES, operand, overlap, require_array, require_dtype
from pyshmem.runtime.arguments import symmetric_array
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.job import job

NAME = "all_reduce_rms_norm"
MOST_HIDDEN = 65536  # a program holds a row
KIB, MIB = 1 << 10, 1 << 20
# Measured on two H200s: the bytes that a PE gets from its peers, up to which a schedule is the best one. The last one is for
# two PEs; more of them have only the schedule before it, which moves less than all rows of all PEs.
BEST = ((512 * KIB, "words"), (2 * MIB, "push"), (16 * MIB, "bulk_synchronous"), (math.inf, "pull"))
LEAST_READ = 256 * KIB  # of x, below which no schedule of BEST reads it where it is
READING = ("pull", "two_shot", "bulk_synchronous")  # schedules that want x symmetric
Pair = tuple[torch.Tensor, torch.Tensor]


def all_reduce_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, out: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None, team: Team | None = None, schedule: str = "auto",
) -> Pair:  # fmt: skip
    """Return (out, residual_out): h = ``residual`` + the sum of all PEs' ``x``, and h normalised by RMSNorm, as (norm, h).

    x, residual: contiguous, (tokens, hidden), of one dtype: float32, float16 or bfloat16. residual is the same on all PEs.
    weight: (hidden,), of that dtype or float32.  eps: is added to the mean square.  team: None is TEAM_WORLD.
    out, residual_out: like x, both or neither; residual_out may be residual. None: two arrays of the plan in turn.
    schedule: "words", "push", "pull", "two_shot" or "bulk_synchronous"; pull and two_shot copy an x that is not symmetric,
        and two_shot needs symmetric results. All PEs get the same bits.
    Order: collective over team, on torch's current stream. A result that is not in out lives until the next call but one.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, NotInitializedError.
    Spec: none.
    """
    given = (x, residual, weight, out, residual_out)
    places = tuple(map(shmem.is_symmetric, given[3:])) if schedule == "two_shot" else ()
    asked = (*map(operand, given), eps, schedule, _pulled(x, schedule), places)
    return plans.find(NAME, team, asked, partial(_prepare, given, eps, schedule))(*given)  # type: ignore[no-any-return]


def reference(parts: Sequence[torch.Tensor], residual: torch.Tensor, weight: torch.Tensor, eps: float) -> Pair:
    """Return both results in float64. parts: x of all PEs of the team."""
    h = torch.stack([x.double() for x in parts]).sum(0) + residual.double()
    return h * torch.rsqrt(h.square().mean(1, keepdim=True) + eps) * weight.double(), h


class Problem(NamedTuple):
    """What a plan is made for. pulled: x is read where it is.  given: the caller has the results."""

    team: Team
    tokens: int
    hidden: int
    dtype: torch.dtype
    eps: float
    pulled: bool
    given: bool


class Plan:
    """A schedule with its memory and kernel. ``generation``: the init it belongs to."""

    def __init__(self, problem: Problem, schedule: str, arrays: tuple[torch.Tensor, ...]) -> None:
        self.problem, self.schedule, self.team, self.generation = problem, schedule, problem.team, job.generation
        self._step = SCHEDULES[schedule](problem, arrays)
        self.space = self._step.space
        self._turn = 0
        self._results: list[Pair] = []

    def __call__(self, x: Any, residual: Any, weight: Any, out: Any, residual_out: Any) -> Pair:
        if out is None:
            out, residual_out = self._own()
        else:
            _require_apart(x, residual, out, residual_out)
        if self.problem.tokens:
            self._step(x, residual, weight, out, residual_out)
        return out, residual_out

    def _own(self) -> Pair:
        """One of two pairs of arrays in turn."""
        if not self._results:
            shape, dtype = (self.problem.tokens, self.problem.hidden), self.problem.dtype
            shared = [self.space[name] for name in ("out 0", "sums 0", "out 1", "sums 1") if name in self.space]
            arrays = shared or [torch.empty(shape, dtype=dtype, device=device()) for _ in range(4)]
            self._results = [(arrays[0], arrays[1]), (arrays[2], arrays[3])]
        self._turn ^= 1
        return self._results[self._turn]


def _prepare(given: tuple[Any, ...], eps: Any, schedule: Any, team: Team) -> tuple[str, Any]:
    """Check the arguments and choose the schedule: what plans.find wants to know."""
    x, residual, weight, out, residual_out = given
    require_array(NAME, "x", x, {"tokens": None, "hidden": None})
    require_dtype(NAME, "x", x, DTYPES)
    tokens, hidden = shape = tuple(x.shape)
    if not 1 <= hidden <= MOST_HIDDEN:
        refuse(ArgumentError, NAME, "x", f"rows of {hidden} elements", f"1 to {MOST_HIDDEN}")
    for name, array in (("residual", residual), ("out", out), ("residual_out", residual_out)):
        if array is not None or name == "residual":
            require_array(NAME, name, array, shape)
            require_dtype(NAME, name, array, (x.dtype,))
    require_array(NAME, "weight", weight, (hidden,))
    require_dtype(NAME, "weight", weight, tuple(dict.fromkeys((x.dtype, torch.float32))))
    if not isinstance(eps, (int, float)) or not 0 <= eps < math.inf:
        refuse(ArgumentError, NAME, "eps", repr(eps), "a number, 0 or more")
    if (out is None) != (residual_out is None):
        missing = "out" if out is None else "residual_out"
        refuse(ArgumentError, NAME, missing, "None", "an array, where the other result has one")
    pulled = _pulled(x, schedule)
    chosen = _chosen(schedule, team, given)
    if chosen == "two_shot" and out is not None:
        symmetric_array(NAME, "out", out)
        symmetric_array(NAME, "residual_out", residual_out)
    problem = Problem(team, tokens, hidden, x.dtype, float(eps), pulled, out is not None)
    place = "" if chosen not in READING else f", x {'where it is' if pulled else 'copied'}"
    text = (
        f"x {shape} in {x.dtype}, weight in {weight.dtype}, eps {eps}, by {chosen}{place}, out given: {problem.given}"
    )
    return text, partial(Plan, problem, chosen, (x, residual, weight, out, residual_out))


def _chosen(schedule: Any, team: Team, given: tuple[Any, ...]) -> str:
    """The schedule to use. Errors: ArgumentError for one that these arguments cannot have."""
    words = has_words(team, given)
    if schedule == "auto":
        return _best(team, given[0].nbytes * max(team.size - 1, 1), words)
    if schedule not in SCHEDULES:
        refuse(ArgumentError, NAME, "schedule", repr(schedule), "auto or " + ", ".join(SCHEDULES))
    if schedule == "words" and not words:
        wants = "at most 4 PEs, arrays at multiples of 16 bytes, and rows of whole words of 4 bytes, up to 16 KiB"
        refuse(ArgumentError, NAME, "schedule", "'words' for other operands", wants)
    return str(schedule)


def _best(team: Team, nbytes: int, words: bool) -> str:
    """The schedule for a PE that gets ``nbytes`` from its peers. words: whether these operands can have it."""
    if machine().arch == "interpreter":
        return "bulk_synchronous"
    best = next(name for most, name in BEST if nbytes <= most)
    if best == "words" and not words:
        return "push"
    return "bulk_synchronous" if best == "pull" and team.size > 2 else best


def _pulled(x: Any, schedule: Any) -> bool:
    """Whether x is symmetric, so that peers can read it; False where no schedule asks for it."""
    large = schedule == "auto" and isinstance(x, torch.Tensor) and x.nbytes > LEAST_READ
    return (large or schedule in READING) and shmem.is_symmetric(x)


def _require_apart(x: torch.Tensor, residual: torch.Tensor, out: torch.Tensor, residual_out: torch.Tensor) -> None:
    """Errors: ArgumentError if a result is in memory that is read, but for residual_out that is residual."""
    same = residual_out.data_ptr() == residual.data_ptr()
    for name, array, other, read in (
        ("out", out, "x", x), ("out", out, "residual", residual), ("out", out, "residual_out", residual_out),
        ("residual_out", residual_out, "x", x), ("residual_out", residual_out, "residual", residual),
    ):  # fmt: skip
        if overlap(array, read) and not (same and name == "residual_out" and other == "residual"):
            refuse(ArgumentError, NAME, name, f"memory of {other}", "memory of its own")
