"""Reductions of arrays in GPU memory by one kernel of all members', and a wait for it: the kernels of reduce_on_stream.

Those of arrays only: up to three are compiled for each element type and operator, by the first calls of small, middle and
large arrays. Of tiles there would be one for each of many sizes.
"""

from __future__ import annotations

from typing import Any

from pyshmem.host.teams import Team
from pyshmem.kernels.plans import kernels, known, launch, remember
from pyshmem.runtime.errors import WaitTimeoutError, refuse_timeout
from pyshmem.runtime.job import job


def reduce(routine: str, heap: Any, group: Team, op: str, dtype: Any, dest: int, src: int, count: int) -> bool:
    """Combine ``count`` elements of all members at ``src`` into every ``dest``; False, and nothing has happened, where no
    kernel can: on all members alike. Errors: WaitTimeoutError, LaunchError."""
    if not heap.reduces:
        return False
    key = ("waited for", op, dtype, count, group.wires, job.generation)
    plan = known.get(key) or remember(key, kernels().waited_for(group, op, dtype, count))
    if plan is None:
        return False
    heap.settle()
    stream = heap.own_stream()
    launch(routine, plan, stream, dest, src)
    try:
        heap.finish(stream)
    except WaitTimeoutError:
        refuse_timeout(routine, "team", f"no word from some PE of {group.name}", "all of them to call it")
    return True
