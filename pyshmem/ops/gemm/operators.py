"""The four products with their communication, the checks of a call, and what each returns, in float64, for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.teams import TEAM_WORLD, Team, member, require_one_node
from pyshmem.ops import autocast, descriptions, plans
from pyshmem.ops.agreement import on_all
from pyshmem.ops.descriptions import all_but, described
from pyshmem.ops.gemm.gradients import Options as OptionsOfGradients
from pyshmem.ops.gemm.gradients import as_matmul, needs_matmul, recorded_call, require_plain
from pyshmem.ops.gemm.plan import Lengths, Plan
from pyshmem.ops.gemm.problem import (
    Order,
    Problem,
    Product,
    Schedule,
    Split,
    given,
    layouts_of,
    lengths_of,
    problem_of,
    require_out,
    rows_of_all,
)
from pyshmem.ops.gemm.scaling import Scales, are_whole, taken
from pyshmem.ops.gemm.selection import ABLE, require_known
from pyshmem.ops.gradients import Gradient, transformed
from pyshmem.ops.plans import Call, Request, plan_for
from pyshmem.ops.rows import OPERATORS
from pyshmem.ops.shares import share_of
from pyshmem.ops.workspace import room_for

_BUT_ROWS = all_but(3)  # of what describes a call: all but the rows of a, which follows a result of None
Operands = Sequence[tuple[torch.Tensor, torch.Tensor]]  # (a, b) of all PEs of the team, in their order


def gemm_all_gather(
    a: torch.Tensor, b: torch.Tensor, split: Split = "rows", out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Schedule = "auto", order: Order = "auto", epilogue: Any = None, size: int | None = None,
    gradient: Gradient = "partial",
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the product of all PEs' rows, (M, N), on all PEs. ``split`` "rows": ``a`` is (M/n_pes, K), this PE's, b (K, N).

    split "columns": a is (M, K), b (K, N/n_pes) this PE's columns.  a, b: of one dtype, with contiguous rows or columns.
    out: symmetric, contiguous, (M, N), or None.  reuse: return one of the plan's two arrays in turn, which is overwritten by
        the next call but one, on the same stream; otherwise the result is the caller's.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: of the divided dimension where n_pes does not divide it.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends its block of the product to n_pes - 1 peers.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(schedule, order, epilogue, size, None, tile, out_dtype, use_fast_accum, gradient, scale_a, scale_b)
    return call("gemm_all_gather", a, b, out, team, plan, split, options, reuse)


def all_gather_gemm(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Literal["auto", "copy_engine", "fused", "bulk_synchronous"] = "auto",
    order: Order = "auto", epilogue: Any = None, size: int | None = None, columns: int | None = None,
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the rows of ``a`` of all PEs, (M, K), times this PE's columns ``b``, (K, N/n_pes): (M, N/n_pes).

    a: this PE's rows, (M/n_pes, K), not necessarily symmetric.  a, b: of one dtype, with contiguous rows or columns.
    out: contiguous, (M, N/n_pes), or None for a new tensor.  reuse: return one of the plan's two arrays in turn, which is
        overwritten by the next call but one, on the same stream.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: M, and columns, N, where n_pes does not divide them.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends its rows of a to n_pes - 1 peers.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(
        schedule, order, epilogue, size, columns, tile, out_dtype, use_fast_accum, "partial", scale_a, scale_b
    )
    return call("all_gather_gemm", a, b, out, team, plan, "rows", options, reuse)


def gemm_reduce_scatter(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Literal["auto", "copy_engine", "fused", "bulk_synchronous"] = "auto",
    order: Order = "auto", epilogue: Any = None, size: int | None = None,
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return this PE's rows, (M/n_pes, N), of the sum over all PEs of ``a`` @ ``b``. The first PEs have one row more.

    a: (M, K/n_pes).  b: (K/n_pes, N).  a, b: this PE's parts of K, of one dtype, with contiguous rows or columns.
    out: contiguous, of the result's shape, or None for a new tensor.  reuse: return one of the plan's two arrays in turn,
        which is overwritten by the next call but one, on the same stream.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: which is K where n_pes does not divide it.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends the rows of its product that others own, to their
        owners.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(schedule, order, epilogue, size, None, tile, out_dtype, use_fast_accum, "partial", scale_a, scale_b)
    return call("gemm_reduce_scatter", a, b, out, team, plan, "rows", options, reuse)


def gemm_all_reduce(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, team: Team | None = None,
    plan: Plan | None = None, *, reuse: bool = False,
    schedule: Literal["auto", "fused", "bulk_synchronous"] = "auto",
    order: Order = "auto", epilogue: Any = None, size: int | None = None, gradient: Gradient = "partial",
    tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the sum over all PEs of ``a`` @ ``b``, (M, N), on all PEs, with equal bits.

    a: (M, K/n_pes).  b: (K/n_pes, N).  a, b: this PE's parts of K, of one dtype, with contiguous rows or columns.
    out: symmetric, contiguous, (M, N), or None.  reuse: return one of the plan's two arrays in turn, which is overwritten by
        the next call but one, on the same stream; otherwise the result is the caller's.  team: None is TEAM_WORLD.
    plan: what ops.plan returned for such a call, or None.
    schedule, order: a name, or "auto".  epilogue: a jit function of (tile, rows, columns) that returns the float32 tile to
        be stored.  size: which is K where n_pes does not divide it.  tile: (BM, BN, BK).
    scale_a, scale_b: of 8-bit floats: float32 of one element, or (rows of a, 1) and (1, columns of b).  out_dtype: of their
        product; None is bfloat16.  use_fast_accum: for them, as in torch._scaled_mm.
    Cost: a PE computes 2 M N K / n_pes flops and sends the rows of its product that others own, to their
        owners, and its rows of the sum to n_pes - 1 peers.
    Order: collective over team, on torch's current stream.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    options = given(schedule, order, epilogue, size, None, tile, out_dtype, use_fast_accum, gradient, scale_a, scale_b)
    return call("gemm_all_reduce", a, b, out, team, plan, "rows", options, reuse)


def plan(
    operator: Product, a: torch.Tensor, b: torch.Tensor, team: Team | None = None, split: Split = "rows", *,
    schedule: Schedule = "auto", order: Order = "auto", epilogue: Any = None, size: int | None = None,
    columns: int | None = None, tile: tuple[int, int, int] | None = None, scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
    gradient: Gradient = "partial",
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


def call(
    operator: str, a: Any, b: Any, out: Any, team: Team | None, plan: Plan | None, split: str, options: dict[str, Any],
    reuse: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Call an operator by the plan for these arguments. Errors: those of problem_of and of Plan."""
    scales = taken(options) if options else ()
    group = (plan.problem.team if type(plan) is Plan else TEAM_WORLD) if team is None else team
    key: Any = None
    private: Any = None
    if not autocast.enabled() and not transformed(a, b):
        shared = split, None if plan is None else id(plan), *options.items(), repr(options)
        private = described(out, a, b, *scales)
        key = operator, id(group), shared, private, None
        known = plans.ready(key)
        if known is not None:
            return known[0].perform(known[1], a, b, out, scales, reuse)  # type: ignore[no-any-return]
    if needs_matmul(a, b) and out is None and plan is None and not scales:

        def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return call(operator, a, b, None, team, None, split, options, reuse)

        return as_matmul(multiply, operator, a, b, group.size, options.get("size"), split)
    if transformed(a, b):
        require_plain(operator, a, b, out, scales, reuse, options.get("epilogue"))
        each = {name: value for name, value in options.items() if name in OptionsOfGradients._fields}
        perform = partial(call, operator, out=None, team=team, plan=plan, split=split, options=options)
        return recorded_call(perform, operator, group, OptionsOfGradients(split=split, **each), a, b)
    arguments = Given(operator, a, b, out, group, split, options, scales)
    found, steps = plan_for(key, _requested, arguments, plan, private)
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


OPERATORS |= {each.__name__: each for each in (gemm_all_gather, all_gather_gemm, gemm_reduce_scatter, gemm_all_reduce)}


def _gemm_all_gather(operands: Operands, me: int, split: str = "rows") -> torch.Tensor:
    return torch.cat([a.double() @ b.double() for a, b in operands], dim=0 if split == "rows" else 1)


def _all_gather_gemm(operands: Operands, me: int) -> torch.Tensor:
    return torch.cat([a for a, _ in operands]).double() @ operands[me][1].double()


def _gemm_reduce_scatter(operands: Operands, me: int) -> torch.Tensor:
    a, b = torch.cat([a for a, _ in operands], 1), torch.cat([b for _, b in operands])
    return (a.double() @ b.double()).tensor_split(len(operands))[me]


def _gemm_all_reduce(operands: Operands, me: int) -> torch.Tensor:
    return torch.cat([a for a, _ in operands], 1).double() @ torch.cat([b for _, b in operands]).double()


# what PE ``me`` gets, by operator: functions of (operands, me)
REFERENCES = {
    "gemm_all_gather": _gemm_all_gather,
    "all_gather_gemm": _all_gather_gemm,
    "gemm_reduce_scatter": _gemm_reduce_scatter,
    "gemm_all_reduce": _gemm_all_reduce,
}
