"""The choice of schedule and order for a problem."""

from __future__ import annotations

from pyshmem.ops import few_rows
from pyshmem.ops.configurations import machine
from pyshmem.ops.libraries import lacks
from pyshmem.ops.orders.streamed import POLICIES
from pyshmem.ops.problem import Problem
from pyshmem.ops.scaling import NONE
from pyshmem.ops.schedules import SCHEDULES, require_split
from pyshmem.ops.tuning import order_of
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.requirements import installed

# The schedules that an operator has, the best for large products first: measured on two H200s, see docs/overlap.md.
ABLE = {
    "gemm_all_gather": ("copy_engine", "fused", "workgroup_specialized", "producer_consumer", "bulk_synchronous"),
    "all_gather_gemm": ("copy_engine", "fused", "producer_consumer", "bulk_synchronous"),
    "gemm_reduce_scatter": ("copy_engine", "fused", "bulk_synchronous"),
    "gemm_all_reduce": ("fused", "bulk_synchronous"),
}
STREAMING = {*((operator, "fused") for operator in ABLE), ("all_gather_gemm", "producer_consumer")}
WHOLE = "data_parallel"  # the order of tiles that one program each makes
BY_LIBRARY = ("copy_engine", "bulk_synchronous")
LEAST_FLOPS, LEAST_SIDE = 2e9, 256
# Triton 3.6 fails in a pass for AMD GPUs where tiles of all PEs are added up.
UNCOMPILED = {("gemm_reduce_scatter", "fused"), ("gemm_all_reduce", "fused")}
OLDEST_FOR_AMD = (3, 7)
FLOPS_PER_BYTE = 2500  # sent: 1.3 times what an H200 computes in the time that its link needs for a byte


def choose(problem: Problem) -> tuple[Problem, str]:
    """Return the problem with a schedule and an order in its options, and why these.

    Errors: ArgumentError for a schedule or an order that the operator does not have.
    """
    options = problem.options
    _require_known(problem)
    schedule, why = options.schedule, "the caller named it"
    if schedule == "auto" and options.order not in ("auto", WHOLE) and "fused" in _able(problem.operator):
        schedule, why = "fused", "the caller named an order that streams tiles"
    elif schedule == "auto":
        schedule, why = _best(problem)
    require_split(problem, schedule)
    order = options.order
    if order == "auto":
        order, reason = _order(problem, schedule)
        why = f"{why}; order: {reason}"
    elif order != WHOLE and (problem.operator, schedule) not in STREAMING:
        got, wants = f"{order!r} with schedule={schedule!r}", f"auto or {WHOLE}: this schedule streams no tiles"
        refuse(ArgumentError, problem.operator, "order", got, wants)
    if problem.scaling != NONE and schedule in BY_LIBRARY and lacks(problem):
        why = f"{why}; our kernel multiplies, for the library does not: {lacks(problem)}"
    return problem._replace(options=options._replace(schedule=schedule, order=order)), why


def _require_known(problem: Problem) -> None:
    """Errors: ArgumentError for a schedule or an order that the operator does not have."""
    options, able = problem.options, _able(problem.operator)
    if options.schedule != "auto" and options.schedule not in able:
        known = "a schedule" if options.schedule in SCHEDULES else "no schedule"
        if options.schedule in ABLE[problem.operator]:
            known = "which needs Triton 3.7 on AMD GPUs"
        refuse(
            ArgumentError, problem.operator, "schedule", f"{options.schedule!r}, {known}", "auto or " + ", ".join(able)
        )
    if options.order != "auto" and options.order not in POLICIES:
        refuse(ArgumentError, problem.operator, "order", repr(options.order), "auto or " + ", ".join(POLICIES))


def _order(problem: Problem, schedule: str) -> tuple[str, str]:
    """Return (order, why) for a problem by a schedule."""
    if (problem.operator, schedule) not in STREAMING:
        return WHOLE, "this schedule streams no tiles"
    if schedule == "fused" and few_rows.suits(problem):
        return WHOLE, "a program has all rows of its columns"
    return order_of(problem)


def _able(operator: str) -> tuple[str, ...]:
    """The schedules that an operator has on this machine."""
    if machine().arch in ("nvidia", "interpreter") or installed("triton") >= OLDEST_FOR_AMD:
        return ABLE[operator]
    return tuple(name for name in ABLE[operator] if (operator, name) not in UNCOMPILED)


def _best(problem: Problem) -> tuple[str, str]:
    """Return (schedule, why) for a problem."""
    if machine().arch == "interpreter":
        return "bulk_synchronous", "kernels are interpreted: the library's product is faster"
    if problem.n_pes == 1:
        return "bulk_synchronous", "a team of one PE sends nothing"
    if few_rows.suits(problem) and few_rows.fills(problem) and "fused" in _able(problem.operator):
        return "fused", "few rows: the product is bound by reading b, and one kernel exchanges the tiles"
    flops, side = problem.typical
    if flops < LEAST_FLOPS or side < LEAST_SIDE:
        return "bulk_synchronous", "the product is too small to hide communication behind it"
    if problem.operator == "gemm_all_gather" and problem.split == "columns":
        return "fused", "only kernels store columns without another pass"
    if problem.operator == "gemm_all_gather" and problem.flops < FLOPS_PER_BYTE * problem.bytes_sent:
        return "fused", "communication takes as long as the product, and stores of all programs are faster than copies"
    return _able(problem.operator)[0], "the fastest of the table for large products on this architecture"
