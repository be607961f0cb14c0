"""One step of decoding: attention of one query of each sequence, whose keys and values are divided among the PEs by tokens.

Bytes that a PE reads: its keys and values once, 2 * tokens * kv_heads * dim elements. It sends (dim + 1) float32 numbers for
each head of each sequence to every peer. Idea: FlashDecoding (Dao et al.), over PEs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.ops import autocast, plans
from pyshmem.ops.aligned import is_aligned
from pyshmem.ops.attention.decode_schedules import SCHEDULES, Schedule
from pyshmem.ops.checks import DTYPES, factor_of, require_array, require_dtype, require_own, schedule_of
from pyshmem.ops.descriptions import all_but, described, typed
from pyshmem.ops.gradients import require_none
from pyshmem.ops.machine import device
from pyshmem.ops.plans import Call, Request, plan_for, team_of
from pyshmem.ops.results import InTurn, InTurnBySize
from pyshmem.ops.workspace import room_for

NAME = "flash_decode"
MOST_WIDTH, MOST_QUERIES = 256, 64  # elements of a head; heads of queries that share one of keys
MOST_TOKENS = 1 << 28  # of a sequence on a PE, for kernels that count with 32 bits
PAGES = 16  # tokens of a page are a multiple of it


def flash_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor | None = None, scale: float | None = None,
    out: torch.Tensor | None = None, team: Team | None = None, schedule: Schedule = "auto",
    block_table: torch.Tensor | None = None, *, reuse: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return softmax(``q`` @ keysᵀ * scale) @ values, (batch, heads, dim), over the keys and values of all PEs, on all PEs.

    q: (batch, heads, dim), the same on all PEs.  k, v: (batch, tokens, kv_heads, dim), contiguous, this PE's tokens of each
        sequence; kv_heads divides heads. All are of one dtype: float32, float16 or bfloat16. tokens may differ between PEs.
    lengths: (batch,), int32, how many of them there are, 0 to tokens; None: all. It is read when the stream gets there.
    block_table: None, or (batch, pages), int32: the pages of this PE that have each sequence's tokens, in their order. Then
        k and v are (all pages, page_size, kv_heads, dim), page_size a multiple of 16, and tokens is pages * page_size.
        Numbers of pages are not checked; those behind the tokens are not read. Idea: vLLM's paged attention.
    scale: None is 1 / sqrt(dim).  out: like q; None: a new tensor.  team: None is TEAM_WORLD.
    schedule: "auto", "fused" or "bulk_synchronous".
    reuse: return one of two arrays of the plan in turn, which the next call but one, on the same stream, overwrites.
    Order: collective over team, on torch's current stream. All PEs get the same bits; a sequence without tokens gets zeros.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    if autocast.enabled() and out is None:
        q, k, v = autocast.lowered(q, k, v)
    require_none(NAME, "it has no backward", q=q, k=k, v=v)
    given = (q, k, v, lengths, block_table, out)
    kinds, options = described(*given), (scale, schedule)
    call = NAME, id(TEAM_WORLD if team is None else team), typed(options), kinds, None
    plan, step = plan_for(call, _requested, team, given, kinds, options)
    return plan(step, given, reuse)  # type: ignore[no-any-return]


def reference(
    q: torch.Tensor, every: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], scale: float | None = None
) -> torch.Tensor:
    """Return the result in float64. every: (k, v, lengths) of all PEs of the team."""
    results = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for i in range(q.shape[0]):
        keys, values = (torch.cat([each[j][i, : int(each[2][i])] for each in every]).double() for j in (0, 1))
        shared = q.shape[1] // max(keys.shape[1], 1)
        keys, values = (each.repeat_interleave(shared, 1) for each in (keys, values))
        found = torch.einsum("hd,thd->ht", q[i].double(), keys) * (q.shape[2] ** -0.5 if scale is None else scale)
        if keys.shape[0]:
            results[i] = torch.einsum("ht,thd->hd", found.softmax(1), values)
    return results


class Problem(NamedTuple):
    """What a plan is made for. room: the most sequences.  width: the elements of a head."""

    team: Team
    room: int
    heads: int
    kv_heads: int
    width: int
    dtype: torch.dtype
    scale: float


class Step(NamedTuple):
    """What calls whose operands are described alike have of a plan. perform: their launches; None: they have no elements.

    new: returns a result.  results: two in turn.
    """

    perform: Any
    bytes_reread: int
    new: Any
    results: InTurn


class Plan(plans.Plan):
    """A schedule, with memory and kernels for all numbers of sequences up to a power of two, and of tokens on this PE.

    PEs find a plan by what they have in common, so that each may change its room for tokens without the others.
    """

    def __init__(self, problem: Problem, schedule: str) -> None:
        self.problem, self.schedule, self.team, self.generation = problem, schedule, problem.team, job.generation
        self._schedule = SCHEDULES[schedule](problem)
        self.space = self._schedule.space
        self._whole = torch.full((max(problem.room, 1),), MOST_TOKENS, dtype=torch.int32, device=device())
        self._private = InTurnBySize()
        self.title = f"{NAME} by {schedule}"  # in timelines

    def rereads(self, step: Step, given: tuple[Any, ...], reuse: bool) -> int:
        """For timelines, the bytes that kernels of a call leave in memory for later ones of it."""
        return step.bytes_reread

    def __call__(self, step: Step, given: tuple[Any, ...], reuse: bool) -> torch.Tensor:
        """given: operands like those that the step was made for."""
        q, k, v, lengths, table, out = given
        if out is None:
            out = step.results.take() if reuse else step.new()
        else:
            require_own(NAME, out, q=q, k=k, v=v)
        if step.perform is not None:
            whole = self._whole
            step.perform(q, k, v, whole if lengths is None else lengths, whole if table is None else table, out)
        return out  # type: ignore[no-any-return]

    def step(self, given: tuple[Any, ...]) -> Step:
        """Return what calls with such operands have. Errors: ArgumentError."""
        q, k, v, lengths, table, out = given
        tokens, page = (k.shape[1], None) if table is None else (table.shape[1] * k.shape[1], k.shape[1])
        if tokens > MOST_TOKENS:
            name = "k" if table is None else "block_table"
            refuse(ArgumentError, NAME, name, f"room for {tokens} tokens", f"up to {MOST_TOKENS}")
        shape, dtype = q.shape, self.problem.dtype
        new = partial(torch.empty, *shape, dtype=dtype, device=self._whole.device)
        results = InTurn(lambda parity: self._private.of("out", parity, shape, dtype), self._private)
        if not q.numel():
            return Step(None, 0, new, results)
        others = (self._whole if each is None else each for each in (lengths, table))
        sample = q if is_aligned(q) else new()  # like a new result
        arrays = q, k, v, *others, sample if out is None else out
        return Step(*self._schedule.step(len(q), tokens, page, arrays), new, results)


def _requested(team: Team | None, given: tuple[Any, ...], kinds: Any, options: tuple[Any, ...]) -> Request:
    """kinds: what describes ``given``.  options: scale and schedule.

    What is like a call before but for its numbers of sequences, tokens and pages is not checked again but for these.
    """
    q, _, _, lengths, table, _ = given
    group, private = team_of(NAME, team), None
    sequences = len(q) if isinstance(q, torch.Tensor) and q.dim() == 3 else 0
    room = sequences if job.debug else room_for(sequences)  # debug mode compares every number with the other PEs'
    if type(kinds) is bytes and sequences:
        private = _lasting(lengths is None, table is None)(kinds), *map(type, options)
    call = Call(NAME, id(group), (room, *_shared(given), *options), private)
    return Request(
        call, group, partial(_prepared, given, room, *options), fits=lambda: _fits(given), lasting=lambda: True,
        steps=lambda plan, kept: plan.step(given),
    )  # fmt: skip


@cache
def _lasting(whole: bool, plain: bool) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return a function that leaves of what described returns the words that say no sequences, tokens or pages.

    whole: there are no lengths.  plain: there is no table.
    """
    caches = (10, 20)  # words of the first dimension of k and v: q has 8 words before them, k has 10 before v
    changing = [2, *(each + more for each in caches for more in range(3 if plain else 1))]
    at = 28  # behind v
    if not whole:
        changing.append(at + 2)
    at += 1 if whole else 4
    if not plain:
        changing += [at + 2, at + 3, at + 4]
    at += 1 if plain else 6
    changing.append(at + 2)  # of out, if there is one
    return all_but(*changing)


def _fits(given: tuple[Any, ...]) -> bool:
    """Return whether operands that are like those of a call before fit each other in what _lasting leaves out."""
    q, k, v, lengths, table, out = given
    sequences, divided = len(q), k if table is None else table
    fit = len(divided) == sequences and k.shape == v.shape
    fit = fit and (lengths is None or len(lengths) == sequences) and (out is None or len(out) == sequences)
    return fit and k.is_contiguous() and v.is_contiguous() and divided.is_contiguous()


def _shared(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what PEs know alike of operands, but for the number of sequences; anything for what is refused."""
    q, k = given[:2]
    kind = (q.shape[1:], q.dtype) if isinstance(q, torch.Tensor) else (type(q),)
    return *kind, k.shape[2] if isinstance(k, torch.Tensor) and k.dim() == 4 else 0


def _prepared(given: tuple[Any, ...], room: int, scale: Any, schedule: Any, team: Team) -> tuple[str, Any]:
    """Check the arguments and choose the schedule, as Request.check does."""
    _checked(given)
    q, k = given[:2]
    usual = "bulk_synchronous" if team.meeting.spans else "fused"  # its tiles do not reach PEs on other nodes
    chosen = schedule_of(NAME, schedule, usual, SCHEDULES, team)
    (sequences, heads, width), kv_heads, factor = q.shape, k.shape[2], factor_of(NAME, scale, q.shape[2])
    problem = Problem(team, room, heads, kv_heads, width, q.dtype, factor)
    text = (
        f"q: {sequences} sequences\nq: {heads} heads\nq: {width} elements\nq: {q.dtype}\nk: {kv_heads} heads\n"
        f"scale: {factor}\nschedule: {chosen}"
    )
    return text, partial(Plan, problem, chosen)


def _checked(given: tuple[Any, ...]) -> None:
    """Errors: ArgumentError, DtypeError."""
    q, k, v, lengths, table, out = given
    require_array(NAME, "q", q, {"batch": None, "heads": None, "dim": None}, DTYPES)
    sequences, heads, width = q.shape
    _require_cache(k, v, table, q)
    kv_heads = k.shape[2]
    if not 1 <= width <= MOST_WIDTH:
        refuse(ArgumentError, NAME, "q", f"heads of {width} elements", f"1 to {MOST_WIDTH}")
    if not kv_heads or heads % kv_heads or not 1 <= heads // kv_heads <= MOST_QUERIES:
        wants = f"1 to {MOST_QUERIES} heads of q for each"
        refuse(ArgumentError, NAME, "k", f"{kv_heads} heads, with {heads} of q", wants)
    if lengths is not None:
        require_array(NAME, "lengths", lengths, (sequences,), (torch.int32,))
    if out is not None:
        require_array(NAME, "out", out, tuple(q.shape), (q.dtype,))


def _require_cache(k: Any, v: Any, table: Any, q: torch.Tensor) -> None:
    """Errors: ArgumentError, DtypeError."""
    sequences, width = q.shape[0], q.shape[2]
    if table is None:
        require_array(NAME, "k", k, {"batch": sequences, "tokens": None, "kv_heads": None, "dim": width})
    else:
        require_array(NAME, "block_table", table, {"batch": sequences, "pages": None}, (torch.int32,))
        require_array(NAME, "k", k, {"all pages": None, "page_size": None, "kv_heads": None, "dim": width})
    require_dtype(NAME, "k", k, (q.dtype,))
    require_array(NAME, "v", v, tuple(k.shape), (q.dtype,))
    if table is not None and (not k.shape[1] or k.shape[1] % PAGES):
        refuse(ArgumentError, NAME, "k", f"pages of {k.shape[1]} tokens", f"a multiple of {PAGES}")
