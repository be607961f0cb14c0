"""Memory under watch: each access is compared with those before it that its agent does not know of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pyshmem.check.analyse.agents import Agent
from pyshmem.check.analyse.shadow import Cell, Op, Shadow
from pyshmem.check.spans import Span

READ, WRITE, ATOMIC, FETCH = "read", "write", "atomic", "fetch"
_READS = (READ, FETCH)  # two of these need no order
_CHANGES = (WRITE, ATOMIC)
_JOINED = (READ, WRITE)
Report = Callable[[Op, Op, int, int, int], None]


class Memory:
    """The heaps, by PE, and private memory, by the negative of PE + 1."""

    def __init__(self, report: Report) -> None:
        self.spaces: dict[int, Shadow] = defaultdict(Shadow)
        self._report = report
        self._told: set[tuple[int, int]] = set()  # pairs of lines
        self._full = 1024  # ranges at which a sweep is worth its time

    def access(
        self, op: Op, agent: Agent, space: int, span: Span, on: tuple[int, int] | None = None, again: bool = False
    ) -> None:
        """Compare and remember.

        on: the context and the PE of an operation on a PE, after what a fence has ordered there.  again: ``op`` stands for
        earlier operations too, which have its number and its line.
        """
        shadow = self.spaces[space]
        places = shadow.places(span)
        kind = op.kind
        if len(places) == 1:
            place = places[0]
            cell = shadow.cells[place]
            if kind == READ and cell.reads.get(op.stream) is op:
                return  # what has come since has been compared with this read
            self._compare(op, agent, space, places, cell, on, again)
            if kind == WRITE:
                shadow.end(place, cell, op)
            elif cell.held == 1:
                cell.add(op)
            else:
                shadow.owned(places, [(cell, 1)])[0].add(op)
            if again and kind in _JOINED:
                shadow.join(place, op)
            return
        groups = shadow.groups(places)
        for cell, _ in groups:
            self._compare(op, agent, space, places, cell, on, again)
        if kind == WRITE:
            shadow.write(span, places, groups, op)
        else:
            for cell in shadow.owned(places, groups):
                cell.add(op)

    def _compare(
        self, op: Op, agent: Agent, space: int, places: Any, cell: Cell, on: tuple[int, int] | None, again: bool
    ) -> None:
        """Report the accesses of a cell that conflict with this one, and that nothing has ordered before it."""
        upto = agent.know.upto.get
        old = cell.write
        late = [old] if old is not None and upto(old.stream, 0) < old.number else []
        if cell.reads and op.kind in _CHANGES:
            late += [old for old in cell.reads.values() if upto(old.stream, 0) < old.number]
        if cell.atomics:
            late += _mixed(op, cell)
        for old in late:
            pair = old.site, op.site
            if (
                pair not in self._told
                and (again or old is not op)
                and not agent.knows(old.stream, old.number)
                and (on is None or not agent.has_fenced(old.stream, old.number, *on))
            ):
                self._told.add(pair)
                shadow = self.spaces[space]
                self._report(old, op, space, *shadow.extent(places, cell))

    def begin(self, space: int, start: int, end: int, known: Callable[[Op], bool]) -> None:
        """A range is allocated anew: what was known by then belongs to what was there before."""
        shadow = self.spaces[space]
        places = shadow.places((start, end))
        for cell in shadow.owned(places, shadow.groups(places)):
            cell.drop(known)

    def cells(self) -> set[Cell]:
        return {cell for shadow in self.spaces.values() for cell in shadow.cells}

    def is_full(self) -> bool:
        """Whether there are twice as many ranges as a sweep has left."""
        return sum(map(len, self.spaces.values())) >= self._full

    def sweep(self, known: Callable[[Op], bool], stands: Callable[[Op], Op]) -> None:
        """Forget what all agents know, and borders between ranges with accesses that ``stands`` says to be the same."""
        for shadow in self.spaces.values():
            shadow.sweep(known, stands)
        self._full = max(1024, 2 * sum(map(len, self.spaces.values())))


def _mixed(op: Op, cell: Cell) -> list[Op]:
    """The atomic operations that conflict with an access: those of one type are atomic against each other."""
    width, reads = op.width, op.kind in _READS
    return [old for old in cell.atomics.values() if old.width != width and not (reads and old.kind in _READS)]
