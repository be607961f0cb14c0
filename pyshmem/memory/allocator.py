"""The symmetric allocator. It is first-fit, deterministic and coalescing, and works on offsets in a heap only.

All PEs make the same calls and so get the same offsets without communication. The live allocations are kept in two
sorted lists, so an access finds its allocation by one bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

ALIGNMENT = 64  # a cache line; also keeps rows of 16-byte accesses whole
_BELOW = -(1 << 63)


class Allocator:
    """Offsets from 0 to ``size``. The size, every start of an allocation and every end of a hole are multiples of ALIGNMENT.

    Allocation i covers the bytes from ``starts[i]`` to ``ends[i]``, exclusive. ``ends`` holds the sizes as requested,
    without rounding. Entry 0 is a sentinel below every address, so ``bisect_right(starts, offset) - 1`` is always a
    valid index.
    """

    __slots__ = ("_highs", "_lows", "_origin", "ends", "size", "starts")

    def __init__(self, size: int, origin: int = 0) -> None:
        """origin: the address of offset 0, modulo the largest alignment; a multiple of ALIGNMENT, alike on all PEs."""
        self.size, self._origin = size, origin
        self.starts = [_BELOW]
        self.ends = [_BELOW]
        # The holes are sorted, disjoint and never adjacent. Only allocation reads them, so they are packed: 16 bytes each.
        self._lows, self._highs = (array("q", [bound] if size else []) for bound in (0, size))

    def allocate(self, nbytes: int, alignment: int = ALIGNMENT) -> int | None:
        """Return the offset of ``nbytes`` > 0 new bytes, or None, without a change, if no hole is large enough.

        alignment: of the address, a power of two.
        """
        for index, (low, high) in enumerate(self.holes()):
            start = self._aligned(low, alignment)
            if start + nbytes <= high:
                self._take(index, start, _rounded(start + nbytes))
                at = bisect_right(self.starts, start)
                self.starts.insert(at, start)
                self.ends.insert(at, start + nbytes)
                return start
        return None

    def release(self, offset: int) -> bool:
        """Free the allocation that begins at ``offset``. Return False if there is none."""
        at = self._index(offset)
        if at is None:
            return False
        start, end = self.starts.pop(at), self.ends.pop(at)
        self._give(start, _rounded(end))
        return True

    def resize(self, offset: int, nbytes: int) -> bool:
        """Grow or shrink the allocation at ``offset`` in place. Return False, without a change, if there is no room."""
        at = self._index(offset)
        if at is None:
            return False
        old = _rounded(self.ends[at])
        new = _rounded(offset + nbytes)
        if new > old:
            hole = bisect_left(self._lows, old)
            if hole == len(self._lows) or self._lows[hole] != old or self._highs[hole] < new:
                return False
            self._take(hole, old, new)
        elif new < old:
            self._give(new, old)
        self.ends[at] = offset + nbytes
        return True

    def adopt(self, start: int, end: int) -> None:
        """Count memory that lies outside of the heap as a live allocation, until ``disown``."""
        at = bisect_right(self.starts, start)
        self.starts.insert(at, start)
        self.ends.insert(at, end)

    def disown(self, start: int) -> None:
        at = bisect_left(self.starts, start)
        del self.starts[at], self.ends[at]

    def extend(self, size: int) -> None:
        """Extend the heap to ``size``, which is larger than its present size."""
        self._give(self.size, size)
        self.size = size

    def missing(self, nbytes: int, alignment: int) -> int:
        """Return by how many bytes the heap must be extended for an allocation that no hole has room for."""
        low = next((low for low, high in self.holes() if high == self.size), self.size)
        return self._aligned(low, alignment) + nbytes - self.size

    def size_of(self, offset: int) -> int | None:
        """Return the size in bytes of the allocation that begins at ``offset``, or None if there is none."""
        at = self._index(offset)
        return None if at is None else self.ends[at] - self.starts[at]

    def covers(self, offset: int, nbytes: int) -> bool:
        """Return whether ``nbytes`` bytes from ``offset`` lie in one live allocation."""
        at = bisect_right(self.starts, offset) - 1
        return offset + nbytes <= self.ends[at]

    def overlaps(self, offset: int, nbytes: int) -> bool:
        """Return whether a live allocation has any of ``nbytes`` bytes from ``offset``."""
        at = bisect_left(self.starts, offset + nbytes) - 1
        return self.ends[at] > offset

    def nearest(self, offset: int) -> tuple[int, int] | None:
        """Return (start, end) of the live allocation closest to ``offset``, or None if there is none."""
        at = bisect_right(self.starts, offset) - 1
        near = [(self.starts[i], self.ends[i]) for i in (at, at + 1) if 0 < i < len(self.starts)]
        return min(near, key=lambda block: max(block[0] - offset, offset - block[1] + 1, 0), default=None)

    def live(self) -> list[tuple[int, int]]:
        """Return (start, end) of every live allocation, in order of address."""
        return list(zip(self.starts[1:], self.ends[1:], strict=True))

    @property
    def used(self) -> int:
        """The bytes of the heap that no hole has."""
        return self.size - sum(high - low for low, high in self.holes())

    def largest_hole(self, alignment: int = ALIGNMENT) -> int:
        """Return the most bytes that one allocation at ``alignment`` can have."""
        return max([0, *(high - self._aligned(low, alignment) for low, high in self.holes())])

    def holes(self) -> Iterator[tuple[int, int]]:
        """Return (start, end) of every free range, in order of address."""
        return zip(self._lows, self._highs, strict=True)

    def _aligned(self, offset: int, alignment: int) -> int:
        """The first offset from this one on whose address is a multiple of ``alignment``, and of ALIGNMENT."""
        return offset + -(self._origin + offset) % max(alignment, ALIGNMENT)

    def _index(self, offset: int) -> int | None:
        at = bisect_left(self.starts, offset)
        return at if 0 < at < len(self.starts) and self.starts[at] == offset else None

    def _take(self, index: int, start: int, end: int) -> None:
        low, high = self._lows[index], self._highs[index]
        left = [hole for hole in ((low, start), (end, high)) if hole[0] < hole[1]]
        self._lows[index : index + 1] = array("q", [hole[0] for hole in left])
        self._highs[index : index + 1] = array("q", [hole[1] for hole in left])

    def _give(self, start: int, end: int) -> None:
        at = bisect_left(self._lows, start)
        if at < len(self._lows) and self._lows[at] == end:
            del self._lows[at]
            end = self._highs.pop(at)
        if at > 0 and self._highs[at - 1] == start:
            self._highs[at - 1] = end
        else:
            self._lows.insert(at, start)
            self._highs.insert(at, end)


def lowest_gap(taken: Iterable[tuple[int, int]], nbytes: int, room: int) -> int | None:
    """Return the lowest start of ``nbytes`` that none of the ranges (start, end) has taken, or None if room ends before."""
    start = 0
    for first, last in sorted(taken):
        if first - start >= nbytes:
            break
        start = max(start, last)
    return start if start + nbytes <= room else None


def _rounded(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
