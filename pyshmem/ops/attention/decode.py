"""One step of decoding: attention of one query of each sequence, whose keys and values are divided among the PEs by tokens.

Bytes that a PE reads: its keys and values once, 2 * tokens * kv_heads * dim elements. It sends (dim + 1) float32 numbers for
each head of each sequence to every peer. Idea: FlashDecoding (Dao et al.), over PEs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from pyshmem.host.teams import Team
from pyshmem.ops import autocast, plans
from pyshmem.ops.agreement import require_no_capture
from pyshmem.ops.attention.decode_kernels import Operands
from pyshmem.ops.attention.decode_schedules import SCHEDULES, Schedule
from pyshmem.ops.gradients import require_none
from pyshmem.ops.machine import device
from pyshmem.ops.plans import DTYPES, InTurn, described, require_array, require_dtype, require_own, shared
from pyshmem.ops.workspace import Workspace
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.job import job

NAME = "flash_decode"
MOST_WIDTH, MOST_QUERIES = 256, 64  # elements of a head; heads of queries that share one of keys
MOST_ROOMS = 128  # of a PE for which a plan has kernels
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
    kinds = described(*given)
    plan = plans.call(NAME, team, kinds, (scale, schedule), _find, team, given, scale, schedule)
    return plan(kinds, given, reuse)  # type: ignore[no-any-return]


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
    """What a plan is made for. tokens: this PE's room for tokens, in pages of ``page``.  width: the elements of a head."""

    team: Team
    sequences: int
    heads: int
    kv_heads: int
    width: int
    tokens: int
    dtype: torch.dtype
    scale: float
    page: int | None


class Plan:
    """The memory of a schedule, and its kernels for this PE's rooms for tokens. ``generation``: the init it belongs to.

    PEs find a plan by what they have in common, so that each may change its room without the others.
    """

    key: Any = None
    used = 0  # as in plans.Plan

    def __init__(self, problem: Problem, schedule: str, shape: torch.Size) -> None:
        """shape: of the result."""
        self.problem, self.schedule, self.team, self.generation = problem, schedule, problem.team, job.generation
        self.space = Workspace(NAME, problem.team, SCHEDULES[schedule].wanted(problem))
        self._epochs = torch.zeros(problem.sequences * problem.kv_heads, dtype=torch.int64, device=device())
        self._new = partial(torch.empty, *shape, dtype=problem.dtype, device=device())
        self._results = InTurn(lambda parity: self._new())
        self._steps: dict[Any, tuple[Any, torch.Tensor]] = {}
        self.title = f"{NAME} by {schedule}"  # in timelines

    def rereads(self, kinds: Any, given: tuple[Any, ...], reuse: bool) -> int:
        """For timelines, the bytes that kernels of a call leave in memory for later ones of it."""
        return self._steps[kinds][0].bytes_reread  # type: ignore[no-any-return]

    def __call__(self, kinds: Any, given: tuple[Any, ...], reuse: bool) -> torch.Tensor:
        """kinds: what describes all of ``given``."""
        q, k, v, lengths, table, out = given
        if out is None:
            out = self._results.take() if reuse else self._new()
        else:
            require_own(NAME, out, q=q, k=k, v=v)
        step, whole = self._steps.get(kinds) or self._make(kinds, (q, k, v, lengths, table, out))
        if out.numel():
            step(q, k, v, whole if lengths is None else lengths, whole if table is None else table, out)
        return out  # type: ignore[no-any-return]

    def _make(self, kinds: Any, given: tuple[Any, ...]) -> tuple[Any, torch.Tensor]:
        """Make the kernel for operands of these kinds, and full lengths. Errors: ArgumentError, DtypeError."""
        require_no_capture(NAME)
        tokens, page = _checked(given)
        whole = torch.full((self.problem.sequences,), tokens, dtype=torch.int32, device=device())
        arrays = Operands(*(whole if each is None else each for each in given))
        problem = self.problem._replace(tokens=tokens, page=page)
        if len(self._steps) == MOST_ROOMS:
            del self._steps[next(iter(self._steps))]
        self._steps[kinds] = SCHEDULES[self.schedule](problem, self.space, self._epochs, arrays), whole
        return self._steps[kinds]


def _find(team: Team | None, given: tuple[Any, ...], scale: Any, schedule: Any) -> Any:
    """Return the plan of a call."""
    q, k = given[:2]
    asked = *shared(q), _kv_heads(k), scale, schedule
    return plans.find(NAME, team, asked, partial(_prepare, given, scale, schedule))


def _kv_heads(k: Any) -> int:
    """Return the heads of keys, 0 for what is refused."""
    return k.shape[2] if isinstance(k, torch.Tensor) and k.dim() == 4 else 0


def _prepare(given: tuple[Any, ...], scale: Any, schedule: Any, team: Team) -> tuple[str, Any]:
    """Check the arguments and choose the schedule: what plans.find wants to know."""
    tokens, page = _checked(given)
    q, k = given[:2]
    usual = "bulk_synchronous" if team.meeting.spans else "fused"  # its tiles do not reach PEs on other nodes
    chosen = plans.schedule_of(NAME, schedule, usual, SCHEDULES, team)
    (sequences, heads, width), kv_heads, factor = q.shape, k.shape[2], plans.factor_of(NAME, scale, q.shape[2])
    problem = Problem(team, sequences, heads, kv_heads, width, tokens, q.dtype, factor, page)
    text = (
        f"q: {sequences} sequences\nq: {heads} heads\nq: {width} elements\nq: {q.dtype}\nk: {kv_heads} heads\n"
        f"scale: {factor}\nschedule: {chosen}"
    )
    return text, partial(Plan, problem, chosen, q.shape)


def _checked(given: tuple[Any, ...]) -> tuple[int, int | None]:
    """Check the operands. Return the room for tokens of a sequence and the tokens of a page."""
    q, k, v, lengths, table, out = given
    require_array(NAME, "q", q, {"batch": None, "heads": None, "dim": None}, DTYPES)
    sequences, heads, width = q.shape
    tokens, page = _require_cache(k, v, table, q)
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
    return tokens, page


def _require_cache(k: Any, v: Any, table: Any, q: torch.Tensor) -> tuple[int, int | None]:
    """Return the room for tokens of a sequence and the tokens of a page. Errors: ArgumentError, DtypeError."""
    sequences, width = q.shape[0], q.shape[2]
    if table is None:
        require_array(NAME, "k", k, {"batch": sequences, "tokens": None, "kv_heads": None, "dim": width})
    else:
        require_array(NAME, "block_table", table, {"batch": sequences, "pages": None}, (torch.int32,))
        require_array(NAME, "k", k, {"all pages": None, "page_size": None, "kv_heads": None, "dim": width})
    require_dtype(NAME, "k", k, (q.dtype,))
    require_array(NAME, "v", v, tuple(k.shape), (q.dtype,))
    room = int(k.shape[1])
    if table is None:
        return room, None
    if not room or room % PAGES:
        refuse(ArgumentError, NAME, "k", f"pages of {room} tokens", f"a multiple of {PAGES}")
    return int(table.shape[1]) * room, room
