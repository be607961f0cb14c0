"""How an operator overlaps its product with its communication: one file for each schedule of the taxonomy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

SCHEDULES = ("bulk_synchronous", "copy_engine", "producer_consumer", "workgroup_specialized", "fused")


def runner(name: str, problem: Any, order: str, a: Any, b: Any) -> Any:
    """Return what performs the calls of a plan.

    It is called with (a, b, out). symmetric: whether peers write to out.  results: two arrays for out, if they do.
    """
    return import_module(f"pyshmem.ops.schedules.{name}").Runner(problem, order, a, b)
