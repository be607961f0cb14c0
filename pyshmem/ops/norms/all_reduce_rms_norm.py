"""The sum of all PEs' parts of activations, the residual, and RMSNorm: what follows a row-parallel layer.

Bytes that a PE gets from its peers: all rows of each.
The sum is rounded to the type of x, as an all-reduce rounds it; all else is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.ops import autocast
from pyshmem.ops.checks import schedule_of
from pyshmem.ops.descriptions import described, typed
from pyshmem.ops.float8 import KIND, Scaled
from pyshmem.ops.gradients import Gradient, recorded
from pyshmem.ops.machine import machine
from pyshmem.ops.norms import problem as norm
from pyshmem.ops.norms.gradients import Options, Way, recorded_call, require_meaning
from pyshmem.ops.norms.schedules import SCHEDULES, Schedule, has_words
from pyshmem.ops.plans import Request, plan_for, team_of

NAME, WAY = "all_reduce_rms_norm", Way(whole=True, gathered=True)
MIB = 1 << 20
# Measured on two and on four H200s: the bytes that a PE gets from its peers, up to which a schedule is the best one. The
# slots of "push" take four times as much, which is why it ends somewhere. On four, "bulk_synchronous" moves less.
MOST_WORDS, MOST_PUSHED = MIB, 64 * MIB
READING = ("pull", "bulk_synchronous")  # schedules that want x symmetric


def all_reduce_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6,
    out: torch.Tensor | Scaled | None = None, residual_out: torch.Tensor | None = None, team: Team | None = None,
    schedule: Schedule = "auto", out_dtype: torch.dtype | None = None, *, reuse: bool = False,
    gradient: Gradient = "partial",
) -> norm.Results:  # fmt: skip
    """Return (out, residual_out): h = ``residual`` + the sum of all PEs' ``x``, and h normalised by RMSNorm, as (norm, h).

    x, residual: contiguous, (tokens, hidden), of bfloat16, float16, float32 or float64. residual is the same on all PEs.
    weight: (hidden,), of that dtype or float32.  eps: is added to the mean square.  team: None is TEAM_WORLD.
    out, residual_out: like x, both or neither; residual_out may be residual. None: new tensors.
    reuse: return two arrays of the plan in turn, which the next call but one, on the same stream, overwrites.
    out_dtype: torch.float8_e4m3fn makes out a Scaled: numbers of 8 bits and a scale for each row. None: that of x or out.
    gradient: of the results: "partial", or "replicated" if all PEs go on to the same loss, which counts once.
    schedule: "auto", "words", "push", "pull" or "bulk_synchronous"; pull copies an x that is not symmetric. All PEs get the
        same bits.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    if gradient != "partial":
        require_meaning(NAME, WAY, gradient)
    if autocast.enabled() and out is None:
        x, residual, weight = autocast.widened(x, residual, weight)
    if recorded(x, residual, weight):
        plain = partial(all_reduce_rms_norm, eps=eps, team=team, schedule=schedule)
        unable = {"out": out, "residual_out": residual_out, "out_dtype": out_dtype, "reuse": reuse}
        options = Options(len(x), eps, gradient)
        return recorded_call(NAME, WAY, plain, (x, residual, weight), options, team, unable)  # type: ignore[no-any-return]
    given = norm.given_of(x, residual, weight, out, residual_out)
    private, options = described(*given), (eps, schedule, out_dtype)
    call = NAME, id(TEAM_WORLD if team is None else team), typed(options), private, None
    plan, _ = plan_for(call, _requested, team, given, private, options)
    return plan(given, reuse)  # type: ignore[no-any-return]


def reference(
    parts: Sequence[torch.Tensor], residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both results in float64. parts: x of all PEs of the team."""
    h = torch.stack([x.double() for x in parts]).sum(0) + residual.double()
    return h * torch.rsqrt(h.square().mean(1, keepdim=True) + eps) * weight.double(), h


def _requested(team: Team | None, given: norm.Given, private: Any, options: tuple[Any, ...]) -> Request:
    """private: what describes the arrays of the call.  options: eps, schedule and out_dtype."""
    group = team_of(NAME, team)

    def choose(kin: norm.Plan) -> str:
        return _chosen("auto", group, given, kin.problem.kind == KIND) if options[1] == "auto" else kin.schedule

    call = norm.call_of(NAME, group, given, private, options, READING)
    return norm.request_of(call, group, partial(_checked, given, *options), given, _shapes, SCHEDULES, choose)


def _checked(given: norm.Given, eps: Any, schedule: Any, out_dtype: Any, team: Team) -> tuple[str, Any]:
    """Check the arguments and choose the schedule, as Request.check does."""
    kind = norm.checked(NAME, given, eps, out_dtype, _shapes)
    chosen = _chosen(schedule, team, given, kind == KIND)
    x, read = given.x, norm.pulled(given.x, schedule, READING)
    tokens, hidden = x.shape
    problem = norm.Problem(NAME, team, tokens, tokens, tokens, hidden, x.dtype, kind, float(eps), read, given=False)
    place = "" if chosen not in READING else f", x {'where it is' if read else 'copied'}"
    return partial(norm.text_of, problem, given, chosen, place), partial(norm.Plan, problem, chosen, SCHEDULES[chosen])


def _shapes(tokens: int) -> tuple[int, int]:
    return tokens, tokens


def _chosen(schedule: Any, team: Team, given: norm.Given, scaled: bool) -> str:
    """The schedule to use. Errors: ArgumentError for one that these arguments cannot have."""
    words = has_words(team, given.x)
    best = _best(team, given.x.nbytes * max(team.size - 1, 1), words, scaled)
    chosen = schedule_of(NAME, schedule, best, SCHEDULES, team, given.x.dtype)
    if chosen == "words" and not words:
        wants = "at most 4 PEs, and rows of whole words of 4 bytes, up to 16 KiB"
        refuse(ArgumentError, NAME, "schedule", "'words' for other operands", wants)
    return chosen


def _best(team: Team, nbytes: int, words: bool, scaled: bool = False) -> str:
    """The schedule for a PE that gets ``nbytes`` from its peers. words: whether these operands can have it.

    scaled: results have 8 bits; then "pull" takes 1.4 times what "bulk_synchronous" does (64 MiB, two H200s).
    """
    if machine().arch == "interpreter":
        return "bulk_synchronous"
    if words and nbytes <= MOST_WORDS:
        return "words"
    if team.size > 2:
        return "bulk_synchronous"
    if nbytes <= MOST_PUSHED:
        return "push"
    return "bulk_synchronous" if scaled else "pull"
