"""How an operator overlaps its product with its communication: one file for each schedule of the taxonomy.

Each has a table ``STEPS``: (operator, split) -> class of (problem, a, b). An object of it performs the calls of a plan: it
is called with (a, b, out), and ``space`` is its memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyshmem.ops.gemm.problem import Problem
from pyshmem.runtime.errors import ArgumentError, refuse

SCHEDULES = ("bulk_synchronous", "copy_engine", "producer_consumer", "workgroup_specialized", "fused")


def require_split(problem: Problem, schedule: str) -> None:
    """Errors: ArgumentError if a schedule has no steps for the operator and its split."""
    if (problem.operator, problem.split) not in _table(schedule):
        got, wants = f"{schedule!r} with split={problem.split!r}", f"a schedule that has split={problem.split!r}: fused"
        refuse(ArgumentError, problem.operator, "schedule", got, wants)


def steps_of(problem: Problem, a: Any, b: Any) -> Any:
    """Return the steps of the problem's schedule, which has its split."""
    return _table(problem.options.schedule)[problem.operator, problem.split](problem, a, b)


def _table(schedule: str) -> Any:
    return import_module(f"pyshmem.ops.gemm.{schedule}").STEPS
