"""Shadow memory: who last wrote and who has read since, for each range of bytes, in as few ranges as their borders allow."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any


class Op:
    """One access of an agent."""

    __slots__ = ("agent", "bytes", "issued", "kind", "message", "name", "number", "site", "stream", "target")

    def __init__(self, stream: int, number: int, kind: str, agent: Any, site: int, name: str) -> None:
        self.stream, self.number, self.kind = stream, number, kind
        self.agent, self.site, self.name = agent, site, name
        self.issued = agent.clock
        self.message: Any = None
        self.target = -1  # the PE of a remote operation


class Cell:
    """The accesses of a range since the last write that followed all before it."""

    __slots__ = ("atomics", "end", "reads", "writes")

    def __init__(self, end: int, writes: list[Op], reads: dict[Any, Op], atomics: dict[Any, Op]) -> None:
        self.end, self.writes, self.reads, self.atomics = end, writes, reads, atomics

    def drop(self, known: Callable[[Op], bool]) -> None:
        self.writes = [op for op in self.writes if not known(op)]
        self.reads = {key: op for key, op in self.reads.items() if not known(op)}
        self.atomics = {key: op for key, op in self.atomics.items() if not known(op)}

    def accesses(self) -> list[Op]:
        return [*self.writes, *self.reads.values(), *self.atomics.values()]


class Shadow:
    """Of one heap, or of one PE's private memory."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.cells: list[Cell] = []

    def __len__(self) -> int:
        return len(self.starts)

    def cells_of(self, start: int, end: int) -> Iterator[tuple[int, Cell]]:
        """The cells of a range, cut at its borders; new ones where there was none."""
        at = bisect_left(self.starts, start)
        if at < len(self.starts) and self.starts[at] == start and self.cells[at].end == end:  # the usual case
            yield start, self.cells[at]
            return
        self._cut(start)
        self._cut(end)
        index = bisect_left(self.starts, start)
        while start < end:
            if index < len(self.starts) and self.starts[index] == start:
                cell = self.cells[index]
            else:
                limit = min(end, self.starts[index]) if index < len(self.starts) else end
                cell = Cell(limit, [], {}, {})
                self.starts.insert(index, start)
                self.cells.insert(index, cell)
            yield start, cell
            start, index = cell.end, index + 1

    def _cut(self, place: int) -> None:
        index = bisect_right(self.starts, place) - 1
        if index >= 0 and self.starts[index] < place < self.cells[index].end:
            cell = self.cells[index]
            rest = Cell(cell.end, list(cell.writes), dict(cell.reads), dict(cell.atomics))
            cell.end = place
            self.starts.insert(index + 1, place)
            self.cells.insert(index + 1, rest)

    def sweep(self, known: Callable[[Op], bool]) -> None:
        """Drop accesses for which ``known`` holds, and ranges without any."""
        kept = []
        for start, cell in zip(self.starts, self.cells, strict=True):
            cell.drop(known)
            if cell.writes or cell.reads or cell.atomics:
                kept.append((start, cell))
        self.starts, self.cells = [start for start, _ in kept], [cell for _, cell in kept]

    def unite(self, start: int, end: int) -> None:
        """Make one range of ranges that a write has just made alike."""
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, end)
        if last - first > 1:
            self.cells[first].end = end
            del self.starts[first + 1 : last]
            del self.cells[first + 1 : last]
