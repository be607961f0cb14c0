"""Where accesses lie: allocations, and words that somebody waits for, found by their addresses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from pyshmem.check.spans import Span, bounds


class Block(NamedTuple):
    """One allocation. ``site``: the number of its line; ``name``: the call."""

    start: int
    end: int
    site: int
    name: str


class Blocks:
    """The allocations of a heap."""

    def __init__(self) -> None:
        self._rows: list[Block] = []
        self.last = Block(0, 0, 0, "")  # that of the last access

    def add(self, block: Block) -> None:
        """Add a block; what the program has freed unseen by the recorder gives way."""
        self.last = Block(0, 0, 0, "")
        self._rows = [row for row in self._rows if row.end <= block.start or block.end <= row.start]
        insort(self._rows, block)

    def remove(self, start: int) -> None:
        self.last = Block(0, 0, 0, "")
        self._rows = [row for row in self._rows if row.start != start]

    def at(self, place: int) -> Block | None:
        index = bisect_right(self._rows, place, key=lambda row: row.start) - 1
        found = self._rows[index] if index >= 0 else None
        return found if found and place < found.end else None

    def fault(self, span: Span) -> str:
        """What is wrong with an access: memory that is not allocated, or of two allocations."""
        start, end = span if len(span) == 2 else bounds(span)
        if self.last.start <= start and end <= self.last.end:
            return ""
        block = self.at(start)
        if block is None:
            return "freed" if self._rows else ""
        self.last = block
        return "across" if end > block.end else ""


class Watched:
    """The words that PEs wait for or fetch: (PE, address)."""

    def __init__(self) -> None:
        self._words: dict[int, list[int]] = defaultdict(list)

    def add(self, words: Iterable[tuple[int, int]]) -> None:
        new = defaultdict(set)
        for pe, start in words:
            new[pe].add(start)
        for pe, starts in new.items():
            self._words[pe] = sorted(starts.union(self._words[pe]))

    def any(self, pe: int, spans: Iterable[Span]) -> bool:
        """Whether there are some between the bounds of the spans."""
        words = self._words.get(pe)
        if words:
            for span in spans:
                start, end = span if len(span) == 2 else bounds(span)
                first = bisect_left(words, start)
                if first < len(words) and words[first] < end:
                    return True
        return False

    def within(self, pe: int, start: int, end: int) -> list[tuple[int, int]]:
        """Return the words that begin in a range, as (PE, place)."""
        words = self._words.get(pe)
        if not words:
            return []
        first = bisect_left(words, start)
        if first == len(words) or words[first] >= end:
            return []
        return [(pe, place) for place in words[first : bisect_left(words, end, first)]]
