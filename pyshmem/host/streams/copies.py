"""fcollect and alltoall by copy engines on torch's current stream, with no kernel where the stream itself can wait.

Members meet twice, by words in the scratch memory of the team: before the copies, as targets may be written then, and after
them. A stream sets its word on every other member to 1, waits until the others have set theirs here, and sets these back to
0. A member sets a word again only after it has passed the other meeting, and so after the word has been set back. The values
are constants, so graphs replay the calls. Where the driver lacks stream memory operations, the barrier of kernels serves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyshmem.base.comparisons import EQ
from pyshmem.host.collectives import Pair, context_of
from pyshmem.host.teams import Team

COME, DONE = 12, 13  # the arrays of words for both meetings, see pyshmem.device.collectives.scratch
_OWN = object()  # the context of copies within this GPU, which would delay those to others on the same stream


def exchange(group: Team, pair: Pair, count: int, step: int, meet: Callable[[], None]) -> None:
    """Copy ``count`` elements to each member, ``step`` elements apart in the source.

    meet: enqueues a barrier, for drivers without stream memory operations.
    """
    heap, item = pair.heap, pair.dtype.itemsize
    near, nbytes, stream = heap.near, count * item, heap.near.use_stream()
    dest, start = pair.dest + group.me * nbytes, _flags(group, heap)
    pes = [(group.me + distance) % group.size for distance in range(1, group.size)]
    away = {pe: heap.deltas[group.start + pe * group.stride] for pe in pes}

    def gather(array: int) -> None:
        if not start:
            meet()
            return
        flags = start + 8 * group.size * array
        for pe in pes:
            heap.driver.write_value(stream, flags + 8 * group.me + away[pe], 1)
        for pe in pes:
            heap.driver.wait_value(stream, flags + 8 * pe, EQ, 1)
        for pe in pes:
            heap.driver.write_value(stream, flags + 8 * pe, 0)

    gather(COME)
    side = near.side(_OWN)
    heap.driver.copy(dest, pair.src + group.me * step * item, nbytes, side.cuda_stream)
    for pe in pes:
        heap.driver.copy(dest + away[pe], pair.src + pe * step * item, nbytes, stream)
    torch.cuda.current_stream(heap.index).wait_stream(side)
    gather(DONE)


def _flags(group: Team, heap: Any) -> int:
    """Return the address of the team's arrays of a word for each member, or 0 if the stream cannot wait for words."""
    from pyshmem.device.collectives.scratch import HEAD, programs_of  # imports triton

    context = context_of(group)
    if programs_of(context) < 0 or not heap.driver.can_wait(EQ):
        return 0
    return int(context.scratch + HEAD)
