"""A range of CPU memory that the PEs of a node share, with a part of fixed size for each PE.

The range is a memfd, which exists as long as a process has it mapped or open. So nothing is left behind when the job ends,
even if it is killed.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from pyshmem.runtime.agreement import together
from pyshmem.runtime.descriptors import Exchange, close_all

if TYPE_CHECKING:
    from pyshmem.runtime.bootstrap import Comm


class Segment:
    """The whole range, mapped into this process as ``memory``. This PE's part begins at ``node_rank * stride``."""

    def __init__(self, world: Comm, node: Comm, stride: int, reserved: int) -> None:
        """Create and map the range. Collective over ``world``. Errors: OSError on all PEs if any node lacks the memory.

        reserved: the bytes of each part for which memory is allocated now; the rest is allocated as it is used.
        """
        self.stride, self.node_rank = stride, node.rank
        exchange, fds = Exchange(world, node), [-1]
        try:
            with together(world):
                if node.rank == 0:
                    fds = [_create(stride * node.size)]
            with together(world):
                fds = [exchange.give(fds[0])]
            with together(world):
                # the owner allocates now: the pages are near its core, and no bus error can follow
                os.posix_fallocate(fds[0], self.node_rank * stride, reserved)
                self.memory = mmap.mmap(fds[0], stride * node.size)
        finally:
            close_all(fds)
            exchange.close()

    def discard(self) -> None:
        """Release this PE's pages at once. The addresses stay mapped while a tensor refers to them."""
        self.memory.madvise(mmap.MADV_REMOVE, self.node_rank * self.stride, self.stride)


def _create(nbytes: int) -> int:
    fd = os.memfd_create("pyshmem-heap", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd
