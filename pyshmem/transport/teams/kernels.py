"""Host reductions of arrays in GPU memory, by a kernel of reduce_on_stream on all members and a wait for it.

Only the kernels for arrays are used: at most three variants are compiled for each element type and operator, at the first
call with a small, a medium and a large array. The kernels for tiles would need a variant for each of many sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyshmem.base.errors import WaitTimeoutError
from pyshmem.base.job import job
from pyshmem.kernels.plans import kernels, known, remember
from pyshmem.memory.heap import Heap

if TYPE_CHECKING:
    from pyshmem.transport.teams.meeting import Meeting
    from pyshmem.transport.teams.operators import Fold


def reduce(routine: str, heap: Heap, team: Meeting, what: Fold, context: Callable[[], Any]) -> bool:
    """Reduce by a kernel. Return False on all members, and do nothing, if there is no kernel for these arguments.

    context: returns the team's device context.
    Errors: WaitTimeoutError, LaunchError.
    """
    if not heap.reduces or not kernels().combines(what.dtype, team.size, heap.arch):
        return False
    asked = what.op, what.dtype, what.nelems
    key = ("waited for", *asked, team.wires, job.generation)
    plan = known.get(key) or remember(key, kernels().waited_for(context(), *asked))
    if plan is None:
        return False
    heap.near.settle()
    stream = heap.near.own_stream()
    plan.launch(routine, stream, what.dest, what.src)
    try:
        heap.near.finish(stream)
    except WaitTimeoutError:
        team.refuse_timeout(routine)
    return True
