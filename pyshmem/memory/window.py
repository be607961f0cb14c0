"""A range of addresses beside a heap, with its stride, into which PEs map memory that they have not taken from the heap.

So an address there is translated as one of the heap: a peer's is this PE's plus a multiple of the stride. The same pages
are mapped a second time here; what is stored at one address is read at the other. What lies in chunks that are mapped
already shares their mapping.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from pyshmem.base.agreement import together
from pyshmem.base.encoding import passed
from pyshmem.memory.allocator import Allocator
from pyshmem.memory.descriptors import Exchange, close_all
from pyshmem.memory.shared_memory import LIBC, MAP_FIXED

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm
    from pyshmem.memory.gpu.driver import Driver

_MOST_FDS = 128  # that one message passes
_NO_ACCESS = 0
_Name = tuple[int, ...]  # what no other memory has meanwhile; ends in the bytes of the chunk


@passed
class Chunk(NamedTuple):
    """Contiguous memory. source: a file descriptor, of memory of the GPU a handle.  start: its first byte there."""

    source: int
    start: int
    nbytes: int


class Pages:
    """CPU memory: pages of files."""

    unit = mmap.PAGESIZE
    holds = False  # whether names last as long as sources are held; else as long as chunks are mapped

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

    def restore(self, address: int, nbytes: int) -> None:
        """Do nothing: an import by a peer leaves the pages of files as they are."""

    def name(self, chunk: Chunk) -> _Name:
        file = os.fstat(chunk.source)
        return file.st_dev, file.st_ino, chunk.start, chunk.nbytes

    def _place(self, address: int, nbytes: int, access: int, flags: int, fd: int = -1, start: int = 0) -> int:
        placed = LIBC.mmap(address or None, nbytes, access, flags, fd, start)
        if placed == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(placed)


class Handles:
    """GPU memory: handles of the driver."""

    holds = True

    def __init__(self, driver: Driver, unit: int) -> None:
        self._driver, self.unit = driver, unit
        self.unreserve, self.export, self.import_ = driver.unreserve, driver.export, driver.import_
        self.unmap, self.release = driver.unmap, driver.release

    def name(self, chunk: Chunk) -> _Name:
        return chunk.source, chunk.nbytes

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

    def restore(self, address: int, nbytes: int) -> None:
        """Give this PE access anew to memory of its own that peers have imported since it has had access.

        On ROCm an import makes the owner's earlier access stale (rocm-systems#9908).
        """
        if self._driver.vendor == "hip":
            self._driver.allow(address, nbytes)


def _parts(place: int, chunks: Sequence[Chunk]) -> Iterator[tuple[int, int]]:
    """The (address, bytes) of chunks that lie one after the other."""
    for chunk in chunks:
        yield place, chunk.nbytes
        place += chunk.nbytes


class _Mapping:
    """parts: (address, bytes) of each chunk of each PE.  names: of this PE's chunks.  held: their sources."""

    def __init__(self, names: list[_Name]) -> None:
        self.parts: list[tuple[int, int]] = []
        self.names = names
        self.held: list[int] = []
        self.users = 1  # registrations


class Window:
    """The range. All calls but close are collective over ``world``, with the same numbers on all PEs."""

    def __init__(self, memory: Pages | Handles, world: Comm, node: Comm, stride: int) -> None:
        """Reserve the range. Errors: OSError or DriverError, on all PEs."""
        self._memory, self._world, self._node, self._stride = memory, world, node, stride
        self._exchange = Exchange(node)
        self._mapped: dict[int, _Mapping] = {}  # by offset
        self._named: dict[
            _Name, tuple[int, int]
        ] = {}  # the offset of a mapping with this chunk of this PE, and which it is
        self._base = 0
        self.places = Allocator(stride)
        with together(world):
            self._base = memory.reserve(stride * node.size)
        self._own = self._base + node.rank * stride

    def find(self, address: int) -> tuple[int, int] | None:
        """Return (node rank, place in its part) of an address; None if it is outside the range."""
        at = address - self._base
        return divmod(at, self._stride) if 0 <= at < self._stride * self._node.size else None

    def locate(self, chunks: Sequence[Chunk]) -> int | None:
        """Return the place at which these chunks of this PE are mapped one after the other; None if they are not."""
        names = [self._memory.name(chunk) for chunk in chunks]
        offset, first = self._named.get(names[0], (-1, 0))
        mapped = self._mapped[offset].names[first:] if offset >= 0 else []
        if mapped[: len(names)] != names:
            return None
        return offset + sum(name[-1] for name in self._mapped[offset].names[:first])

    def share(self, place: int) -> int:
        """Use what is mapped at a place, the same on all PEs, once more, until ``remove``. Return the address."""
        self._mapped[self._offset(place)].users += 1
        return self.address(place)

    def add(self, original: int, chunks: Sequence[Chunk], layouts: Sequence[Sequence[Chunk]]) -> int | None:
        """Map the chunks of all PEs of the node, and return the address of this PE's first; None if there is no room.

        original: where this PE has its chunks already.  chunks: their sources are the window's to release.
        layouts: those of each PE, by node rank; their sources mean nothing here.
        Errors: OSError or DriverError, on all PEs, and nothing is mapped.
        """
        with ExitStack() as undo, ExitStack() as sources:
            for chunk in chunks:
                sources.callback(self._memory.release, chunk.source)
            size = max(sum(chunk.nbytes for chunk in layout) for layout in layouts)
            offset = self.places.allocate(size, self._memory.unit)
            if offset is None:
                return None
            mapping = _Mapping([self._memory.name(chunk) for chunk in chunks])
            undo.callback(self.places.release, offset)
            undo.callback(self._unmap, mapping)
            for first in range(0, max(map(len, layouts)), _MOST_FDS):
                self._map(offset, original, chunks, layouts, slice(first, first + _MOST_FDS), mapping.parts)
            undo.pop_all()
            if self._memory.holds:
                mapping.held = [chunk.source for chunk in chunks]
                sources.pop_all()
        self._mapped[offset] = mapping
        self._named.update((name, (offset, at)) for at, name in enumerate(mapping.names))
        return self._own + offset

    def _map(
        self, offset: int, original: int, chunks: Sequence[Chunk], layouts: Sequence[Sequence[Chunk]], some: slice,
        mapped: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Map some chunks of each PE, and note in ``mapped`` where."""
        fds: list[int] = []
        theirs: list[list[int]] = []
        try:
            with together(self._world):
                fds = [self._memory.export(chunk.source) for chunk in chunks[some]]
            with together(self._world):
                theirs = self._exchange.swap_all(fds)
                for rank, layout in enumerate(layouts):
                    before = sum(chunk.nbytes for chunk in layout[: some.start])
                    place = self._base + rank * self._stride + offset + before
                    if layout[some] and rank != self._node.rank:
                        self._import(place, layout[some], theirs[rank])
                        mapped.extend(_parts(place, layout[some]))
            with together(self._world):  # after the imports of all PEs, see Handles.restore
                if chunks[some]:
                    before = sum(chunk.nbytes for chunk in chunks[: some.start])
                    self._memory.map(self._own + offset + before, chunks[some])
                    mapped.extend(_parts(self._own + offset + before, chunks[some]))
                    self._memory.restore(original + before, sum(chunk.nbytes for chunk in chunks[some]))
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

    def place(self, address: int) -> int:
        """Return the place of this PE's memory at an address, as on all PEs."""
        return address - self._own

    def address(self, place: int) -> int:
        return self._own + place

    def remove(self, address: int) -> None:
        """End one use of what is mapped at an address that ``add`` or ``share`` has returned, and with the last the mapping.

        The caller has synchronised all PEs.
        """
        offset = self._offset(self.place(address))
        mapping = self._mapped[offset]
        mapping.users -= 1
        if not mapping.users:
            del self._mapped[offset]
            for name in mapping.names:
                if self._named.get(name, (-1, 0))[0] == offset:
                    del self._named[name]
            self._end(mapping)
            self.places.release(offset)

    def _offset(self, place: int) -> int:
        """Return where the mapping begins in which a place lies."""
        return max(offset for offset in self._mapped if offset <= place)

    def _end(self, mapping: _Mapping) -> None:
        self._unmap(mapping)
        for source in mapping.held:
            self._memory.release(source)

    def _unmap(self, mapping: _Mapping) -> None:
        for place, nbytes in mapping.parts:
            self._memory.unmap(place, nbytes)

    def close(self) -> None:
        """Unmap everything. A barrier before the call ensures that no PE accesses it any more."""
        for mapping in self._mapped.values():
            self._end(mapping)
        self._mapped.clear()
        if self._base:
            self._memory.unreserve(self._base, self._stride * self._node.size)
