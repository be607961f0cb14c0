"""Shadow memory: who last wrote and who has read since, for each range of bytes, in as few ranges as their borders allow.

Neighbours with the same history are one range, ranges with the same history share a cell, and the places of an access are
remembered until a border is added: a program that repeats its accesses, of rows and columns too, costs little.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyshmem.check.spans import Span, parts

_MANY = 64  # ranges that a write covers at once and that become one


class Op:
    """One access of an agent."""

    __slots__ = ("agent", "issued", "kind", "message", "name", "number", "site", "stream", "target", "width")

    def __init__(self, stream: int, number: int, kind: str, agent: Any, site: int, name: str, width: int = 0) -> None:
        self.stream, self.number, self.kind = stream, number, kind
        self.agent, self.site, self.name = agent, site, name
        self.width = width  # of an atomic operation: bytes of a word, negative of floats
        self.issued = agent.own.number
        self.message: Any = None
        self.target = -1  # the PE of a remote operation


_NONE: dict[Any, Any] = {}  # in place of an empty one of its own, which nothing may change


class Cell:
    """The accesses of ranges since the last write that followed all before it. ``held``: the number of these ranges."""

    __slots__ = ("atomics", "held", "reads", "write")

    def __init__(
        self, held: int, write: Op | None = None, reads: dict[int, Op] = _NONE, atomics: dict[Any, Op] = _NONE
    ) -> None:
        self.held, self.write, self.reads, self.atomics = held, write, reads, atomics

    def copy(self, held: int) -> Cell:
        return Cell(held, self.write, dict(self.reads) or _NONE, dict(self.atomics) or _NONE)

    def add(self, op: Op) -> None:
        """A read, or an atomic operation: the last of each stream."""
        if op.kind == "read":
            if self.reads is _NONE:
                self.reads = {}
            self.reads[op.stream] = op
        else:
            if self.atomics is _NONE:
                self.atomics = {}
            self.atomics[op.width, op.stream, op.kind] = op

    def stand(self, stands: Callable[[Op], Op]) -> None:
        """Put operations in each other's place that tell the same."""
        if self.write is not None:
            self.write = stands(self.write)
        for row in (self.reads, self.atomics):
            for key, op in row.items():
                row[key] = stands(op)

    def same(self, other: Cell) -> bool:
        """Whether both have the same accesses."""
        return self.write is other.write and self.reads == other.reads and self.atomics == other.atomics

    def drop(self, known: Callable[[Op], bool]) -> None:
        if self.write is not None and known(self.write):
            self.write = None
        self.reads = {key: op for key, op in self.reads.items() if not known(op)} or _NONE
        self.atomics = {key: op for key, op in self.atomics.items() if not known(op)} or _NONE

    def accesses(self) -> list[Op]:
        return [*([self.write] if self.write else []), *self.reads.values(), *self.atomics.values()]


class Shadow:
    """What is known of the bytes of one heap, or of one PE's private memory."""

    def __init__(self) -> None:
        self.starts = array("q")
        self.ends = array("q")
        self.cells: list[Cell] = []
        self._known: dict[Span, Sequence[int]] = {}

    def __len__(self) -> int:
        return len(self.starts)

    def places(self, span: Span) -> Sequence[int]:
        """The numbers of the ranges that make up a span, cut at its borders; new ones where there was none."""
        if len(span) == 2:
            start, end = span
            at = bisect_left(self.starts, start)
            follower = self.starts[at] if at < len(self.starts) else end
            if follower == start < end:
                if self.ends[at] == end:  # the usual case
                    return (at,)
                if self.ends[at] > end:
                    self._cut_at(at, end)
                    return (at,)
            elif follower >= end > start and (not at or self.ends[at - 1] <= start):
                self._insert(at, start, end, Cell(1))
                return (at,)
        found = self._known.get(span)
        if found is None:
            ranges = parts(span)
            for start, end in ranges:
                self._border(start, end)
            found = self._known[span] = [
                place
                for start, end in ranges
                for place in range(bisect_left(self.starts, start), bisect_left(self.starts, end))
            ]
        return found

    def _border(self, start: int, end: int) -> None:
        """Make ranges from start to end, without a gap."""
        self._cut(start)
        self._cut(end)
        index = bisect_left(self.starts, start)
        while start < end:
            if index < len(self.starts) and self.starts[index] == start:
                start = self.ends[index]
            else:
                limit = min(end, self.starts[index]) if index < len(self.starts) else end
                self._insert(index, start, limit, Cell(1))
                start = limit
            index += 1

    def _cut(self, place: int) -> None:
        index = bisect_right(self.starts, place) - 1
        if index >= 0 and self.starts[index] < place < self.ends[index]:
            self._cut_at(index, place)

    def _cut_at(self, index: int, place: int) -> None:
        cell = self.cells[index]
        cell.held += 1
        self._insert(index + 1, place, self.ends[index], cell)
        self.ends[index] = place

    def _insert(self, index: int, start: int, end: int, cell: Cell) -> None:
        self._known.clear()
        self.starts.insert(index, start)
        self.ends.insert(index, end)
        self.cells.insert(index, cell)

    def groups(self, places: Sequence[int]) -> list[tuple[Cell, int]]:
        """The cells at these places, with the number of places of each."""
        if len(places) == 1:
            return [(self.cells[places[0]], 1)]
        return list(Counter(map(self.cells.__getitem__, places)).items())

    def owned(self, places: Sequence[int], groups: list[tuple[Cell, int]]) -> list[Cell]:
        """Give these places cells that no other places share, with the same history."""
        new = {}
        for cell, count in groups:
            if count < cell.held:
                cell.held -= count
                new[cell] = cell.copy(count)
        if new:
            for place in places:
                self.cells[place] = new.get(self.cells[place], self.cells[place])
        return [new.get(cell, cell) for cell, _ in groups]

    def end(self, place: int, cell: Cell, op: Op) -> None:
        """A write ends the history of one place."""
        if cell.held == 1:
            cell.write, cell.reads, cell.atomics = op, _NONE, _NONE
        else:
            cell.held -= 1
            self.cells[place] = Cell(1, op)

    def write(self, span: Span, places: Sequence[int], groups: list[tuple[Cell, int]], op: Op) -> None:
        """A write ends the history of these places."""
        for cell, count in groups:
            cell.held -= count
        new = Cell(len(places), op)
        for place in places:
            self.cells[place] = new
        if len(places) > _MANY and len(span) == 2:
            first, last = places[0], places[-1]
            self.ends[first] = span[1]
            for row in (self.starts, self.ends, self.cells):
                del row[first + 1 : last + 1]
            new.held = 1
            self._known.clear()

    def join(self, place: int, op: Op) -> None:
        """Make one range of neighbours after an access to one of them, if all have the same history."""
        cells, starts, ends = self.cells, self.starts, self.ends
        for left in (place, place - 1):
            if 0 <= left < len(starts) - 1 and ends[left] == starts[left + 1]:
                one, other = cells[left], cells[left + 1]
                if (
                    one.write is other.write
                    and (one.write is op or one.reads.get(op.stream) is op)
                    and one.reads == other.reads
                    and not one.atomics
                    and not other.atomics
                ):
                    ends[left] = ends[left + 1]
                    other.held -= 1
                    del starts[left + 1], ends[left + 1], cells[left + 1]
                    self._known.clear()

    def extent(self, places: Sequence[int], cell: Cell) -> tuple[int, int]:
        """The first of these places with this cell, and those that follow it without a gap."""
        at = next(index for index, place in enumerate(places) if self.cells[place] is cell)
        start, end = self.starts[places[at]], self.ends[places[at]]
        for place in places[at + 1 :]:
            if self.starts[place] != end or self.cells[place] is not cell:
                break
            end = self.ends[place]
        return start, end

    def sweep(self, known: Callable[[Op], bool], stands: Callable[[Op], Op]) -> None:
        """Drop accesses for which ``known`` holds, ranges without any, and borders between ranges with the same accesses.

        stands: the operation that says as much as one, for all of which this holds.
        """
        for cell in set(self.cells):
            cell.drop(known)
            cell.stand(stands)
            cell.held = 0
        rows = zip(self.starts, self.ends, self.cells, strict=True)
        self.starts, self.ends, self.cells = array("q"), array("q"), []
        self._known.clear()
        for start, end, cell in rows:
            if self.cells and self.ends[-1] == start and (self.cells[-1] is cell or self.cells[-1].same(cell)):
                self.ends[-1] = end
            elif cell.write or cell.reads or cell.atomics:
                cell.held += 1
                self.starts.append(start)
                self.ends.append(end)
                self.cells.append(cell)
