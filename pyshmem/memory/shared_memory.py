"""A range of CPU memory that the PEs of a node share, with a part of fixed size for each PE.

The range is a memfd, which exists as long as a process has it mapped or open. So nothing is left behind when the job ends,
even if it is killed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

from pyshmem.base.agreement import together
from pyshmem.memory.descriptors import close_all, of_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyshmem.base.bootstrap import Comm
    from pyshmem.memory.mailbox import Mailbox, Place


MAP_FIXED, _PROT_NONE = 0x10, 0
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(3 * (ctypes.c_int,)), ctypes.c_long)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Segment:
    """The whole range, mapped into this process. This PE's part is at ``own`` in ``memory``, at a multiple of alignment."""

    def __init__(
        self,
        world: Comm,
        node: Comm,
        neighbours: tuple[Mailbox, Sequence[Place]],
        stride: int,
        reserved: int,
        alignment: int,
    ) -> None:
        """Create and map the range. Collective over ``world``. Errors: OSError on all PEs if any node lacks the memory.

        neighbours: this PE's mailbox, and the places of the mailboxes of all of the node.
        reserved: the bytes of each part for which memory is allocated now; the rest is allocated as it is used.
        alignment: a power of two, of pages.
        """
        self.stride, self.node_rank = stride, node.rank
        fd = -1
        try:
            with together(world):
                fd = of_first(node, *neighbours, lambda: _create(stride * node.size + alignment))
                # the owner allocates now: the pages are near its core, and no bus error can follow
                os.posix_fallocate(fd, self.node_rank * stride, reserved)
                self._map(fd, stride * node.size, alignment)
        finally:
            close_all([fd])

    def _map(self, fd: int, nbytes: int, alignment: int) -> None:
        """Map ``nbytes`` of ``fd`` in the middle of a larger mapping, whose other pages nobody can access."""
        self.memory = mmap.mmap(fd, nbytes + alignment)  # it ends with the last tensor that refers to it
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        before = -(address + self.node_rank * self.stride) % alignment
        access = mmap.PROT_READ | mmap.PROT_WRITE
        placed = LIBC.mmap(address + before, nbytes, access, mmap.MAP_SHARED | MAP_FIXED, fd, 0)
        margins = (address, before), (address + before + nbytes, alignment - before)
        if placed != address + before or any(LIBC.mprotect(*margin, _PROT_NONE) for margin in margins):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.own = before + self.node_rank * self.stride
        self.address = address + self.own

    def discard(self, kept: Iterable[tuple[int, int]] = ()) -> None:
        """Release this PE's pages at once, but for those of ``kept``. All stay mapped while a tensor refers to them.

        kept: (start, end) of ranges of this PE's part, in their order.
        """
        free = 0
        for start, end in (*kept, (self.stride, self.stride)):
            start -= start % mmap.PAGESIZE
            if start > free:
                self.memory.madvise(mmap.MADV_REMOVE, self.own + free, start - free)
            free = end + -end % mmap.PAGESIZE


def _create(nbytes: int) -> int:
    fd = os.memfd_create("pyshmem-heap", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd
