"""Makes the plan of a matrix over all PEs that its arguments ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyshmem.host.teams import TEAM_WORLD, require_one_node
from pyshmem.irregular.matrix import csr
from pyshmem.irregular.plans import Plan
from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.segments import ELEMENTS, FETCHES, divided
from pyshmem.irregular.stealing import STEALING, StealingPlan
from pyshmem.runtime.arguments import is_int, require_init
from pyshmem.runtime.errors import ArgumentError, refuse

GAP = 16  # elements: at most a line of 128 bytes is fetched in vain to save a get


def plan(
    matrix: Any, cut: str | Sequence[int] = "nonzeros", fetch: str = "needed",
    schedule: str | Schedule = "merge_path", size: int | None = None, gap: int = GAP,
) -> Plan:  # fmt: skip
    """Return a plan for products of ``matrix``, square, with vectors, both cut over all PEs by rows.

    cut: "rows" or "nonzeros", of which all PEs get about as many; matrix is then whole, the same on all PEs. Or the rows
        where the shares begin, and the end of the last; matrix is then this PE's rows, of all columns.
    fetch: "needed", the segments of a vector with a column of this PE's rows, joined over ``gap`` elements, or "whole",
        before the product; "elements", each by the product's kernel when it needs it, and then from a cache, on one node.
    schedule, size: as in spmv. "stealing", with fetch "whole" and on one node: a PE that has done its rows takes pieces of
        others' rows, reads them from their memory and stores the results there.
    Order: collective over all PEs, since it allocates symmetric memory.
    Errors: ArgumentError, DtypeError, OutOfRangeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    require_init("plan")
    found = csr(matrix)
    if not isinstance(fetch, str) or fetch not in FETCHES:
        refuse(ArgumentError, "plan", "fetch", repr(fetch), " or ".join(map(repr, FETCHES)))
    if not is_int(gap) or gap < 0:
        refuse(ArgumentError, "plan", "gap", repr(gap), "a number of elements, 0 or more")
    if schedule == STEALING and fetch != "whole":
        refuse(ArgumentError, "plan", "fetch", repr(fetch), "'whole' with the schedule 'stealing'")
    if fetch == ELEMENTS:
        require_one_node("plan", TEAM_WORLD, "fetch", "'elements' for ", "'needed' or 'whole'")
    if schedule == STEALING:
        require_one_node("plan", TEAM_WORLD, "schedule", "'stealing' for ", "a schedule of each PE's own rows")
    rows, starts = divided("plan", found, cut)
    if schedule == STEALING:
        return StealingPlan(rows, starts, size)
    return Plan(rows, starts, fetch, schedule, size, gap)
