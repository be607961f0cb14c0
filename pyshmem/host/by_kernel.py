"""Reductions of arrays in GPU memory by one kernel of all members', and a wait for it: the kernels of reduce_on_stream.

One is compiled for each element type and operator, whatever the sizes, so those of small arrays are left to calls that are
enqueued on streams.
"""

from __future__ import annotations

from typing import Any

from pyshmem.host import _native
from pyshmem.host.errors import LaunchError, WaitTimeoutError, refuse, refuse_timeout
from pyshmem.host.heap import cpu
from pyshmem.host.job import job
from pyshmem.host.plans import kernels, known, remember
from pyshmem.host.teams import Team


def reduce(routine: str, heap: Any, group: Team, op: str, dtype: Any, dest: int, src: int, count: int) -> bool:
    """Combine ``count`` elements of all members at ``src`` into every ``dest``; False, and nothing has happened, where no
    kernel can: on all members alike. Errors: WaitTimeoutError, LaunchError."""
    if heap is cpu or not heap.reduces:
        return False
    key = ("waited for", op, dtype, count, group.wires, job.generation)
    plan = known.get(key) or remember(key, kernels().waited_for(group, op, dtype, count))
    if plan is None:
        return False
    heap.settle()
    stream = heap.own_stream()
    code = _native.launch_prepared(plan.prepared, stream, dest, src, *plan.counts)
    if code:
        refuse(LaunchError, routine, "stream", f"{code} from the driver", "a launch that succeeds")
    try:
        heap.finish(stream)
    except WaitTimeoutError:
        refuse_timeout(routine, "team", f"no word from some PE of {group.name}", "all of them to call it")
    return True
