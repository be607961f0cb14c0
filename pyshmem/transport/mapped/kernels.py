"""Reductions of arrays in GPU memory by one kernel of all members, and a wait for it: the kernels of reduce_on_stream.

Only the kernels of arrays serve: up to three are compiled for each element type and operator, by the first calls with small,
middle and large arrays. Of the kernels of tiles there would be one for each of many sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyshmem.kernels.plans import kernels, known, launch, remember
from pyshmem.runtime.errors import WaitTimeoutError
from pyshmem.runtime.heap import Heap
from pyshmem.runtime.job import job

if TYPE_CHECKING:
    from pyshmem.transport.mapped import Mapped
    from pyshmem.transport.mapped.operators import Fold


def reduce(routine: str, heap: Heap, team: Mapped, what: Fold, context: Callable[[], Any]) -> bool:
    """Reduce. context: makes the team's device context.

    False, and nothing has happened, where no kernel can: on all members alike.  Errors: WaitTimeoutError, LaunchError.
    """
    if not heap.reduces or not kernels().combines(what.dtype, team.size, heap.arch):
        return False
    asked = what.op, what.dtype, what.nelems
    key = ("waited for", *asked, team.wires, job.generation)
    plan = known.get(key) or remember(key, kernels().waited_for(context(), *asked))
    if plan is None:
        return False
    heap.direct.settle()
    stream = heap.direct.own_stream()
    launch(routine, plan, stream, what.dest, what.src)
    try:
        heap.direct.finish(stream)
    except WaitTimeoutError:
        team.refuse_timeout(routine)
    return True
