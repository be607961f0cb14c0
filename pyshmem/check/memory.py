"""Memory under watch: each access is compared with those before it that its agent does not know of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pyshmem.check.agents import Agent, Stream
from pyshmem.check.shadow import Op, Shadow

READ, WRITE, ATOMIC, FETCH = "read", "write", "atomic", "fetch"
# which kinds of earlier accesses an access must be ordered after: names of the fields of a cell
_AGAINST = {
    READ: ("writes", "atomics"),
    WRITE: ("writes", "reads", "atomics"),
    ATOMIC: ("writes", "reads"),
    FETCH: ("writes",),
}
Report = Callable[[Op, Op, int, int, int], None]


class Memory:
    """The heaps, by PE, and private memory, by the negative of PE + 1."""

    def __init__(self, report: Report) -> None:
        self.spaces: dict[int, Shadow] = defaultdict(Shadow)
        self._report = report
        self._swept = 1024  # ranges after the last sweep, doubled

    def access(self, op: Op, agent: Agent, space: int, start: int, end: int, line: Stream | None = None) -> None:
        """Compare and remember. line: the stream of an operation on a PE, of which fence orders what is earlier."""
        if start >= end:
            return
        shadow, know, kind = self.spaces[space], agent.know, op.kind
        fenced, own = (line.fenced, line.id) if line is not None else (0, 0)
        parts = 0
        for place, cell in shadow.cells_of(start, end):
            parts += 1
            for field in _AGAINST[kind]:
                held = getattr(cell, field)
                for old in held if field == "writes" else list(held.values()):
                    if old is op or know.knows(old.stream, old.number):
                        continue
                    if old.stream == own and old.number <= fenced:
                        continue
                    if old.kind == FETCH and kind == READ:
                        continue
                    self._report(old, op, space, place, cell.end)
            if kind == READ:
                cell.reads[op.stream] = op
            elif kind == WRITE:
                cell.writes = [op]
                cell.reads, cell.atomics = {}, {}
            else:
                cell.atomics[op.stream, kind] = op
        if kind == WRITE and parts > 1:
            shadow.unite(start, end)

    def begin(self, space: int, start: int, end: int, known: Callable[[Op], bool]) -> None:
        """A range is allocated anew: what was known by then belongs to what was there before."""
        shadow = self.spaces[space]
        for _, cell in shadow.cells_of(start, end):
            cell.drop(known)

    def sweep(self, known: Callable[[Any], bool]) -> bool:
        """Forget what all agents know, once there is much of it."""
        if sum(map(len, self.spaces.values())) < self._swept:
            return False
        for shadow in self.spaces.values():
            shadow.sweep(known)
        self._swept = max(1024, 2 * sum(map(len, self.spaces.values())))
        return True
