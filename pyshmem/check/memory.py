"""Memory under watch: each access is compared with those before it that its agent does not know of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pyshmem.check.agents import Agent
from pyshmem.check.shadow import Cell, Op, Shadow
from pyshmem.check.spans import Span

READ, WRITE, ATOMIC, FETCH = "read", "write", "atomic", "fetch"
_READS = (READ, FETCH)  # two of these need no order
_CHANGES = (WRITE, ATOMIC)
Report = Callable[[Op, Op, int, int, int], None]


class Memory:
    """The heaps, by PE, and private memory, by the negative of PE + 1."""

    def __init__(self, report: Report) -> None:
        self.spaces: dict[int, Shadow] = defaultdict(Shadow)
        self._report = report
        self._told: set[tuple[int, int]] = set()  # pairs of lines
        self._swept = 1024  # ranges after the last sweep, doubled

    def access(
        self, op: Op, agent: Agent, space: int, span: Span, on: tuple[int, int] | None = None, again: bool = False
    ) -> None:
        """Compare and remember.

        on: the context and the PE of an operation on a PE, after what a fence has ordered there.  again: ``op`` stands for
        earlier operations too, which have its number and its line.
        """
        shadow = self.spaces[space]
        places = shadow.places(span)
        if len(places) == 1:
            cell = shadow.cells[places[0]]
            if op.kind == READ and cell.reads.get(op.stream) is op:
                return  # what has come since has been compared with this read
            groups = [(cell, 1)]
        else:
            groups = shadow.groups(places)
        for cell, _ in groups:
            for old in _late(op, agent.know.upto, cell):
                pair = old.site, op.site
                if (
                    pair not in self._told
                    and (again or old is not op)
                    and not agent.knows(old.stream, old.number)
                    and (on is None or not agent.has_fenced(old.stream, old.number, *on))
                ):
                    self._told.add(pair)
                    self._report(old, op, space, *shadow.extent(places, cell))
        if op.kind == WRITE:
            shadow.write(span, places, groups, op)
        elif len(places) == 1 and cell.held == 1:  # the usual case
            cell.add(op)
        else:
            for cell in shadow.owned(places, groups):
                cell.add(op)
        if len(places) == 1 and op.kind == READ:
            shadow.join(places[0], op)

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


def _late(op: Op, upto: dict[int, int], cell: Cell) -> list[Op]:
    """The earlier accesses that conflict with this one, without those that an agent that knows ``upto`` knows at once."""
    kind, late = op.kind, []
    old = cell.write
    if old is not None and upto.get(old.stream, 0) < old.number:
        late.append(old)
    if cell.reads and kind in _CHANGES:
        late += [old for old in cell.reads.values() if upto.get(old.stream, 0) < old.number]
    if cell.atomics:  # those of one type are atomic against each other
        late += [
            old
            for old in cell.atomics.values()
            if old.width != op.width
            and upto.get(old.stream, 0) < old.number
            and not (old.kind in _READS and kind in _READS)
        ]
    return late
