"""The choice of schedule and order for a problem."""

from __future__ import annotations

from pyshmem.ops.orders.streamed import POLICIES
from pyshmem.ops.problem import Problem
from pyshmem.ops.schedules import SCHEDULES
from pyshmem.runtime.errors import ArgumentError, refuse

# The schedules that an operator has, the best for large products first.
ABLE = {
    "gemm_all_gather": ("fused", "copy_engine", "workgroup_specialized", "producer_consumer", "bulk_synchronous"),
    "all_gather_gemm": ("producer_consumer", "copy_engine", "fused", "bulk_synchronous"),
    "gemm_reduce_scatter": ("fused", "copy_engine", "bulk_synchronous"),
    "gemm_all_reduce": ("fused", "bulk_synchronous"),
}


def choose(problem: Problem) -> tuple[str, str, str]:
    """Return (schedule, order, why). Errors: ArgumentError for a schedule or an order that the operator does not have."""
    options, able = problem.options, ABLE[problem.operator]
    if options.schedule != "auto" and options.schedule not in able:
        known = "a schedule" if options.schedule in SCHEDULES else "no schedule"
        refuse(ArgumentError, problem.operator, "schedule", f"{options.schedule!r}, {known}", "auto or " + ", ".join(able))
    if options.order != "auto" and options.order not in POLICIES:
        refuse(ArgumentError, problem.operator, "order", repr(options.order), "auto or " + ", ".join(POLICIES))
    order = "data_parallel" if options.order == "auto" else options.order
    if options.schedule != "auto":
        return options.schedule, order, "the caller named it"
    return able[0], order, "the first of the table"
