"""The schedules of the taxonomy: how an operator overlaps its product with its communication.

Each has a table STEPS: (operator, split) -> class of (problem, a, b, space). An object of it performs the calls of a plan:
it is called with (a, b, out) and the scales, and its ``space`` is the plan's memory, which it allocates if it gets None.
"""

from __future__ import annotations

from typing import Any

from pyshmem.ops.gemm import bulk_synchronous, copy_engine, fused, producer_consumer, workgroup_specialized

SCHEDULES: dict[str, dict[tuple[str, str], Any]] = {
    "bulk_synchronous": bulk_synchronous.STEPS,
    "copy_engine": copy_engine.STEPS,
    "producer_consumer": producer_consumer.STEPS,
    "workgroup_specialized": workgroup_specialized.STEPS,
    "fused": fused.STEPS,
}
