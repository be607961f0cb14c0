"""The sum of all PEs' parts of activations, the residual, and RMSNorm, divided by tokens: for sequence parallelism.

Bytes that a PE gets from its peers: its share of x from each, and with the all-gather the normalised rows of all others.
The sum is rounded to the type of x, as a reduce-scatter rounds it; all else is computed in float32.
Idea: Reducing Activation Recomputation in Large Transformer Models (Korthikanti et al., arXiv 2205.05198).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Protocol

import torch

import pyshmem as shmem
from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.ops import autocast
from pyshmem.ops.checks import schedule_of
from pyshmem.ops.descriptions import described, typed
from pyshmem.ops.float8 import KIND, Scaled
from pyshmem.ops.gradients import Gradient, recorded
from pyshmem.ops.machine import machine
from pyshmem.ops.norms import all_reduce_rms_norm as whole
from pyshmem.ops.norms import problem as norm
from pyshmem.ops.norms.gradients import Options, Way, recorded_call, require_meaning
from pyshmem.ops.norms.share_schedules import GATHERED, SHARES
from pyshmem.ops.plans import Request, plan_for, team_of
from pyshmem.ops.shares import share_of, start_of

# the bytes of x that a PE gets from its peers, up to which "push" is the best one, on two H200s; on four, from three peers
MOST_PUSHED, MOST_PUSHED_BY_MORE = 4 << 20, 16 << 20
Schedule = Literal["auto", "push", "pull", "bulk_synchronous"]
READING = ("pull", "bulk_synchronous")  # schedules that want x symmetric

_DOC = """Return (out, residual_out), {made} and h: ``residual`` + this PE's share of the sum of all ``x``.

    x: contiguous, (tokens, hidden), of bfloat16, float16, float32 or float64. The first tokens % n of n PEs have a row more.
    residual: those rows, of x's dtype.  weight: (hidden,), of that dtype or float32.  eps: is added to the mean square.
    out, residual_out: {out}, and (share, hidden), both or neither; residual_out may be residual. None: new tensors.
    reuse: return two arrays of the plan in turn, which the next call but one, on the same stream, overwrites.
    out_dtype: torch.float8_e4m3fn makes out a Scaled, of numbers of 8 bits and a scale for each row.
{gradient}    schedule: "push", "pull" or "bulk_synchronous".{symmetric}  team: None is TEAM_WORLD.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """


class _Norm(Protocol):
    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = ...,
        out: torch.Tensor | Scaled | None = ..., residual_out: torch.Tensor | None = ..., team: Team | None = ...,
        schedule: Schedule = ..., out_dtype: torch.dtype | None = ..., *, reuse: bool = ...,
        gradient: Gradient = ...,
    ) -> norm.Results: ...  # fmt: skip


def _operator(name: str, **text: str) -> _Norm:
    """Return the operator of this name. text: of its docstring."""

    def call(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6,
        out: torch.Tensor | Scaled | None = None, residual_out: torch.Tensor | None = None, team: Team | None = None,
        schedule: Schedule = "auto", out_dtype: torch.dtype | None = None, *, reuse: bool = False,
        gradient: Gradient = "partial",
    ) -> norm.Results:  # fmt: skip
        if gradient != "partial":
            require_meaning(name, WAYS[name], gradient)
        if autocast.enabled() and out is None:
            x, residual, weight = autocast.widened(x, residual, weight)
        if recorded(x, residual, weight):
            plain = partial(call, eps=eps, team=team, schedule=schedule)
            unable = {"out": out, "residual_out": residual_out, "out_dtype": out_dtype, "reuse": reuse}
            options = Options(len(x), eps, gradient)
            return recorded_call(name, WAYS[name], plain, (x, residual, weight), options, team, unable)  # type: ignore[no-any-return]
        given = norm.given_of(x, residual, weight, out, residual_out)
        private, options = described(*given), (eps, schedule, out_dtype)
        if name == GATHER and given.out is not None:  # peers write it
            private = private, *map(shmem.is_symmetric, given[3:])
        key = name, id(TEAM_WORLD if team is None else team), typed(options), private, None
        plan, _ = plan_for(key, _requested, name, team, given, private, options)
        return plan(given, reuse)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _DOC.format(**text)
    return call


NAME, GATHER = "reduce_scatter_rms_norm", "reduce_scatter_rms_norm_all_gather"
WAYS = {NAME: Way(whole=False, gathered=False), GATHER: Way(whole=False, gathered=True)}
reduce_scatter_rms_norm = _operator(NAME, made="RMSNorm of h", out="(share, hidden)", symmetric="", gradient="")
reduce_scatter_rms_norm_all_gather = _operator(
    GATHER,
    made="RMSNorm of all PEs' h",
    out="(tokens, hidden)",
    gradient='    gradient: of out: "partial", or "replicated" if all PEs go on to the same loss, which counts once.\n',
    symmetric=" The first two need a symmetric out; all PEs get the same bits.",
)


def reference(
    parts: Sequence[torch.Tensor], residual: torch.Tensor, weight: torch.Tensor, eps: float, me: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both results of PE ``me`` in float64. parts: x of all PEs of the team.  residual: of ``me``."""
    first, count = start_of(len(parts[0]), me, len(parts)), share_of(len(parts[0]), me, len(parts))
    return whole.reference([part[first : first + count] for part in parts], residual, weight, eps)


def _requested(name: str, team: Team | None, given: norm.Given, private: Any, options: tuple[Any, ...]) -> Request:
    """private: what describes the arrays of the call.  options: eps, schedule and out_dtype."""
    group, gathers = team_of(name, team), name == GATHER

    def choose(kin: norm.Plan) -> str:
        return _chosen(name, "auto", group, given.x, kin.problem.kind) if options[1] == "auto" else kin.schedule

    call = norm.call_of(name, group, given, private, options, READING, gathers and given.out is not None)
    check, shapes = partial(_checked, name, given, *options), partial(_shapes, gathers, group)
    return norm.request_of(call, group, check, given, shapes, GATHERED if gathers else SHARES, choose)


def _checked(name: str, given: norm.Given, eps: Any, schedule: Any, out_dtype: Any, team: Team) -> tuple[str, Any]:
    """Check the arguments and choose the schedule, as Request.check does."""
    gathers = name == GATHER
    shapes = partial(_shapes, gathers, team)
    kind = norm.checked(name, given, eps, out_dtype, shapes)
    schedules: Any = GATHERED if gathers else SHARES
    x, read = given.x, norm.pulled(given.x, schedule, READING)
    tokens, hidden = x.shape
    chosen = _chosen(name, schedule, team, x, kind)
    if gathers and chosen != "bulk_synchronous":
        norm.require_symmetric(name, given, ("out", "out.scales"))
    problem = norm.Problem(
        name, team, tokens, *shapes(tokens), hidden, x.dtype, kind, float(eps), read, gathers and given.out is not None
    )
    place = "" if chosen not in READING else f", x {'where it is' if read else 'copied'}"
    return partial(norm.text_of, problem, given, chosen, place), partial(norm.Plan, problem, chosen, schedules[chosen])


def _shapes(gathers: bool, team: Team, tokens: int) -> tuple[int, int]:
    share = share_of(tokens, team.me, team.size)
    return share, tokens if gathers else share


def _chosen(name: str, schedule: Any, team: Team, x: torch.Tensor, kind: torch.dtype) -> str:
    """The schedule to use. Errors: ArgumentError for one that these arguments cannot have."""
    gathers = name == GATHER
    nbytes = x.nbytes // team.size * (team.size - 1)
    usual = _best(team, nbytes, kind == KIND and not gathers)
    return schedule_of(name, schedule, usual, GATHERED if gathers else SHARES, team, x.dtype)


def _best(team: Team, nbytes: int, scaled: bool) -> str:
    """The schedule for a PE that gets ``nbytes`` of x from its peers. Kernels do not reach PEs on other nodes by tiles.

    scaled: results have 8 bits, and are not gathered; then "pull" takes 1.4 times what "bulk_synchronous" does (64 MiB).
    """
    if team.meeting.spans or machine().arch == "interpreter":
        return "bulk_synchronous"
    if nbytes <= (MOST_PUSHED if team.size <= 2 else MOST_PUSHED_BY_MORE):
        return "push"
    return "bulk_synchronous" if scaled else "pull"
