"""One shared range of CPU memory for the PEs of a node, with a stretch of fixed size for each of them.

The range is a memfd: it lives as long as a process has it mapped or open. Whatever ends the job, a kill included, leaves
nothing behind.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from pyshmem.runtime.agreement import together
from pyshmem.runtime.descriptors import Exchange, close_all

if TYPE_CHECKING:
    from mpi4py import MPI


class Segment:
    """The whole range as it is mapped here, in ``memory``. This PE's stretch begins at ``slot`` * ``stride``."""

    def __init__(self, world: MPI.Intracomm, node: MPI.Intracomm, stride: int) -> None:
        """Collective over ``world``. Errors: OSError on every PE alike, where any of them lacks the memory."""
        self.stride, self.slot = stride, node.rank
        exchange, fds = Exchange(world, node), [-1]
        try:
            with together(world):
                if node.rank == 0:
                    fds = [_create(stride * node.size)]
            with together(world):
                fds = [exchange.give(fds[0])]
            with together(world):
                # now, by its owner: near its core, and never a bus error later
                os.posix_fallocate(fds[0], self.slot * stride, stride)
                self.memory = mmap.mmap(fds[0], stride * node.size)
        finally:
            close_all(fds)
            exchange.close()

    def discard(self) -> None:
        """Give this PE's pages back at once. The addresses stay mapped while a tensor of the caller still refers to them."""
        self.memory.madvise(mmap.MADV_REMOVE, self.slot * self.stride, self.stride)


def _create(nbytes: int) -> int:
    fd = os.memfd_create("pyshmem-heap", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd
