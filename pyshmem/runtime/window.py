"""A range of addresses beside a heap, with its stride, into which PEs map memory that they have not taken from the heap.

So an address there is translated as one of the heap: a peer's is this PE's plus a multiple of the stride. The same pages
are mapped a second time here; what is stored at one address is read at the other.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from pyshmem.runtime.agreement import together
from pyshmem.runtime.allocator import Allocator
from pyshmem.runtime.descriptors import Exchange, close_all
from pyshmem.runtime.shared_memory import LIBC, MAP_FIXED

if TYPE_CHECKING:
    from pyshmem.runtime.bootstrap import Comm
    from pyshmem.runtime.gpu.driver import Driver

_MOST_FDS = 128  # that one message passes
_NO_ACCESS = 0


class Chunk(NamedTuple):
    """Contiguous memory. source: a file descriptor, of memory of the GPU a handle.  start: its first byte there."""

    source: int
    start: int
    nbytes: int


class Pages:
    """CPU memory: pages of files."""

    unit = mmap.PAGESIZE

    def reserve(self, nbytes: int) -> int:
        return self._place(0, nbytes, _NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def unreserve(self, address: int, nbytes: int) -> None:
        LIBC.munmap(address, nbytes)

    def export(self, source: int) -> int:
        return os.dup(source)

    def import_(self, fd: int) -> int:
        return os.dup(fd)

    def map(self, address: int, chunks: Sequence[Chunk]) -> None:
        """Map chunks one after the other."""
        access = mmap.PROT_READ | mmap.PROT_WRITE
        for chunk in chunks:
            self._place(address, chunk.nbytes, access, mmap.MAP_SHARED | MAP_FIXED, chunk.source, chunk.start)
            address += chunk.nbytes

    def unmap(self, address: int, nbytes: int) -> None:
        self._place(address, nbytes, _NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED)

    def release(self, source: int) -> None:
        os.close(source)

    def _place(self, address: int, nbytes: int, access: int, flags: int, fd: int = -1, start: int = 0) -> int:
        placed = LIBC.mmap(address or None, nbytes, access, flags, fd, start)
        if placed == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(placed)


class Handles:
    """GPU memory: handles of the driver."""

    def __init__(self, driver: Driver, unit: int) -> None:
        self._driver, self.unit = driver, unit
        self.unreserve, self.export, self.import_ = driver.unreserve, driver.export, driver.import_
        self.unmap, self.release = driver.unmap, driver.release

    def reserve(self, nbytes: int) -> int:
        return self._driver.reserve(nbytes, self.unit)

    def map(self, address: int, chunks: Sequence[Chunk]) -> None:
        """Map chunks one after the other, and allow access to all of them by one call: it is the slowest."""
        place = address
        with ExitStack() as undo:
            for chunk in chunks:
                self._driver.map(place, chunk.nbytes, chunk.source)
                undo.callback(self._driver.unmap, place, chunk.nbytes)
                place += chunk.nbytes
            self._driver.allow(address, place - address)
            undo.pop_all()


class Window:
    """The range. All calls but close are collective over ``world``, with the same numbers on all PEs."""

    def __init__(self, memory: Pages | Handles, world: Comm, node: Comm, stride: int) -> None:
        """Reserve the range. Errors: OSError or DriverError, on all PEs."""
        self._memory, self._world, self._node, self._stride = memory, world, node, stride
        self._exchange = Exchange(world, node)
        self._mapped: dict[int, list[tuple[int, int]]] = {}  # address and bytes of each chunk, by offset
        self._base = 0
        self.places = Allocator(stride)
        with together(world):
            self._base = memory.reserve(stride * node.size)
        self._own = self._base + node.rank * stride

    def find(self, address: int) -> tuple[int, int] | None:
        """Return (node rank, place in its part) of an address; None if it is outside the range."""
        at = address - self._base
        return divmod(at, self._stride) if 0 <= at < self._stride * self._node.size else None

    def add(self, chunks: Sequence[Chunk], layouts: Sequence[Sequence[Chunk]]) -> int | None:
        """Map the chunks of all PEs of the node, and return the address of this PE's first; None if there is no room.

        chunks: of this PE.  layouts: those of each PE, by node rank; their sources mean nothing here.
        Errors: OSError or DriverError, on all PEs, and nothing is mapped.
        """
        size = max(sum(chunk.nbytes for chunk in layout) for layout in layouts)
        offset = self.places.allocate(size, self._memory.unit)
        if offset is None:
            return None
        mapped: list[tuple[int, int]] = []
        with ExitStack() as undo:
            undo.callback(self.places.release, offset)
            undo.callback(self._unmap, mapped)
            for first in range(0, max(map(len, layouts)), _MOST_FDS):
                self._map(offset, chunks, layouts, slice(first, first + _MOST_FDS), mapped)
            undo.pop_all()
        self._mapped[offset] = mapped
        return self._own + offset

    def _map(
        self, offset: int, chunks: Sequence[Chunk], layouts: Sequence[Sequence[Chunk]], some: slice,
        mapped: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Map some chunks of each PE, and note in ``mapped`` where."""
        fds: list[int] = []
        theirs: list[list[int]] = []
        try:
            with together(self._world):
                fds = [self._memory.export(chunk.source) for chunk in chunks[some]]
            with together(self._world):
                theirs = self._exchange.swap_all(fds, [len(layout[some]) for layout in layouts])
            with together(self._world):
                for rank, layout in enumerate(layouts):
                    before = sum(chunk.nbytes for chunk in layout[: some.start])
                    place = self._base + rank * self._stride + offset + before
                    if layout[some] and rank == self._node.rank:
                        self._memory.map(place, chunks[some])
                    elif layout[some]:
                        self._import(place, layout[some], theirs[rank])
                    for chunk in layout[some]:
                        mapped.append((place, chunk.nbytes))
                        place += chunk.nbytes
        finally:
            close_all([*fds, *(fd for each in theirs for fd in each)])

    def _import(self, place: int, layout: Sequence[Chunk], fds: Sequence[int]) -> None:
        """Map chunks of another PE, of which it has sent descriptors."""
        with ExitStack() as sources:
            chunks = []
            for chunk, fd in zip(layout, fds, strict=True):
                source = self._memory.import_(fd)
                sources.callback(self._memory.release, source)  # what is mapped lasts
                chunks.append(chunk._replace(source=source))
            self._memory.map(place, chunks)

    def offset(self, address: int) -> int:
        """Return where ``add`` has mapped this PE's chunks, as on all PEs."""
        return address - self._own

    def remove(self, address: int) -> None:
        """Unmap what ``add`` has mapped there. The caller has synchronised all PEs."""
        offset = self.offset(address)
        self._unmap(self._mapped.pop(offset))
        self.places.release(offset)

    def _unmap(self, mapped: list[tuple[int, int]]) -> None:
        for place, nbytes in mapped:
            self._memory.unmap(place, nbytes)

    def close(self) -> None:
        """Unmap everything. A barrier before the call ensures that no PE accesses it any more."""
        for mapped in self._mapped.values():
            self._unmap(mapped)
        self._mapped.clear()
        self._exchange.close()
        if self._base:
            self._memory.unreserve(self._base, self._stride * self._node.size)
