"""Memory under watch: each access is compared with those before it that its agent does not know of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyshmem.check.agents import Agent
from pyshmem.check.shadow import Cell, Op, Shadow
from pyshmem.check.spans import Span

READ, WRITE, ATOMIC, FETCH = "read", "write", "atomic", "fetch"
_READS = (READ, FETCH)  # two of these need no order
_CHANGES = (WRITE, ATOMIC)
Report = Callable[[Op, Op, int, int, int], None]


def _against(op: Op, cell: Cell) -> Iterator[Iterable[Op]]:
    """The earlier accesses that an access must be ordered after. Atomics of one type are atomic against each other."""
    yield cell.writes
    if op.kind in _CHANGES:
        yield cell.reads.values()
    for width, held in cell.atomics.items():
        if width != op.width:
            yield held.values()


class Memory:
    """The heaps, by PE, and private memory, by the negative of PE + 1."""

    def __init__(self, report: Report) -> None:
        self.spaces: dict[int, Shadow] = defaultdict(Shadow)
        self._report = report
        self._swept = 1024  # ranges after the last sweep, doubled

    def access(self, op: Op, agent: Agent, space: int, span: Span, on: tuple[int, int] | None = None) -> None:
        """Compare and remember. on: the context and the PE of an operation on a PE, after what a fence has ordered there."""
        shadow = self.spaces[space]
        places = shadow.places(span)
        groups = shadow.groups(places)
        for cell, _ in groups:
            for old in self._unordered(op, agent, cell, on):
                self._report(old, op, space, *shadow.extent(places, cell))
        if op.kind == WRITE:
            shadow.write(span, places, groups, op)
            return
        for cell in shadow.owned(places, groups):
            if op.kind == READ:
                cell.reads[op.stream] = op
            else:
                cell.atomics.setdefault(op.width, {})[op.stream, op.kind] = op

    def _unordered(self, op: Op, agent: Agent, cell: Cell, on: tuple[int, int] | None) -> list[Op]:
        """The earlier accesses that conflict with this one and that nothing orders before it."""
        found = []
        for held in _against(op, cell):
            for old in held:
                if old is op or agent.knows(old.stream, old.number):
                    continue
                if on is not None and agent.has_fenced(old.stream, old.number, *on):
                    continue
                if old.kind in _READS and op.kind in _READS:
                    continue
                found.append(old)
        return found

    def begin(self, space: int, start: int, end: int, known: Callable[[Op], bool]) -> None:
        """A range is allocated anew: what was known by then belongs to what was there before."""
        shadow = self.spaces[space]
        places = shadow.places((start, end))
        for cell in shadow.owned(places, shadow.groups(places)):
            cell.drop(known)

    def sweep(self, known: Callable[[Any], bool]) -> bool:
        """Forget what all agents know, once there is much of it."""
        if sum(map(len, self.spaces.values())) < self._swept:
            return False
        for shadow in self.spaces.values():
            shadow.sweep(known)
        self._swept = max(1024, 2 * sum(map(len, self.spaces.values())))
        return True
