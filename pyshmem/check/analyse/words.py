"""Words that PEs wait for: who has changed them, in which order, and which changes a wait must have seen.

A wait acquires from the earliest changes after which its condition held: another execution may have waited no longer. An
addition without which the condition would hold too is none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, and_, eq, ge, gt, le, lt, ne, or_, xor
from typing import Any

from pyshmem.check.analyse.places import Watched
from pyshmem.check.analyse.shadow import Op
from pyshmem.check.spans import Span, parts

# by the codes of pyshmem.base.comparisons
COMPARE: tuple[Callable[[Any, Any], bool], ...] = (eq, ne, gt, ge, lt, le)
_MOST = 4096  # changes that are remembered
_NAMED: dict[str, Callable[[int, int], int]] = {"add": add, "and": and_, "or": or_, "xor": xor}
_APPLY = {prefix + name: apply for name, apply in _NAMED.items() for prefix in ("", "fetch_")}
_REPLACES = ("set", "swap", "store")
_MASKS = [(1 << 8 * size) - 1 for size in range(17)]


class Change:
    """``value`` is the word's after it, None if that is not known."""

    __slots__ = ("op", "operand", "operator", "value")

    def __init__(self, op: Op, operator: str, operand: int | None) -> None:
        self.op, self.operator, self.operand = op, operator, operand
        self.value: int | None = None

    @property
    def replaces(self) -> bool:
        """Whether it is not based on the value before it."""
        return self.operator in _REPLACES


class Word:
    """One aligned word; values are unsigned."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.value: int | None = None
        self.before: int | None = None  # the value before the first change that is remembered
        self.changes: list[Change] = []
        self.dropped = 0  # changes that are not remembered any more
        # by agents' own streams: what their last wait or fetch has acquired
        self.caught: dict[int, tuple[int, int]] = {}
        # of the last wait: the place of its last change, and all changes that it needs
        self._seen: tuple[int, list[Change]] = 0, []

    def wrap(self, value: int) -> int:
        return value & _MASKS[self.size]

    def change(self, op: Op, operator: str, operand: int | None) -> None:
        change = Change(op, operator, operand)
        if operator == "set" and operand is not None:
            self.value = change.value = operand & _MASKS[self.size]
        else:
            self.value = change.value = self._after(change, self.value)
        if len(self.changes) >= _MOST:
            self._drop(_MOST // 2)
        self.changes.append(change)

    def _after(self, change: Change, old: int | None) -> int | None:
        """The value after a change, None if it is not known; that of a compare_swap is when it has returned."""
        if change.operand is None or change.operator == "compare_swap":
            return None
        return self.result(change.operator, change.operand, old)

    def result(self, operator: str, operand: int, old: int | None) -> int | None:
        """What an operator leaves of ``old``."""
        if operator in _REPLACES:
            return self.wrap(operand)
        apply = _APPLY.get(operator)
        return None if old is None or apply is None else apply(old, operand) & _MASKS[self.size]

    def begin(self, value: int | None, known: Callable[[Op], bool]) -> None:
        """The word is allocated anew, with this value, and changes that are not known have come since."""
        self.forget(known)
        self.before = self.value = value
        for change in self.changes:
            self.value = change.value = self._after(change, self.value)

    def settle(self, op: Op, value: int | None) -> None:
        """What a fetching operation has left, now that it has told what was there; None if it has changed nothing."""
        index = len(self.changes) - 1
        while index >= 0 and self.changes[index].op is not op:
            index -= 1
        if index < 0:
            return
        if value is None:
            del self.changes[index]
            moved = self.dropped + index  # changes behind it have the number before theirs now
            self.caught = {
                agent: (first - (first > moved), end - (end > moved)) for agent, (first, end) in self.caught.items()
            }
        else:
            self.changes[index].value = self.wrap(value)
        if index >= len(self.changes) - 1:
            self.value = self.changes[-1].value if self.changes else self.before

    def forget(self, known: Callable[[Op], bool]) -> None:
        """Drop the first changes, as long as all agents know them."""
        count = 0
        while count < len(self.changes) and known(self.changes[count].op):
            count += 1
        if count:
            self._drop(count)

    def _drop(self, count: int) -> None:
        self.before = self.changes[count - 1].value
        self.dropped += count
        del self.changes[:count]

    def found(self, value: int, mine: Op | None, agent: int = 0) -> list[Op] | None:
        """The changes that an operation acquires which has found ``value``: the last that left it.

        mine: the change that the operation itself makes.  agent: as in seen.  None: it cannot be told.
        """
        under_way = None  # a compare_swap that has not returned, and would have left the value
        for index in range(len(self.changes) - 1, -1, -1):
            change = self.changes[index]
            if change.op is mine:
                continue
            if change.value == value:
                return self._chain(index, agent, mine)
            if change.value is None:
                if change.operator != "compare_swap" or change.operand is None:
                    return None
                if under_way is None and self.wrap(change.operand) == value:
                    under_way = index
            elif under_way is not None:
                break  # before it the word held another value
        return [] if under_way is None else self._chain(under_way, agent, mine)

    def seen(self, holds: Callable[[int], bool], known: Callable[[Op], bool], agent: int = 0) -> list[Op] | None:
        """The changes that a wait acquires which has found that its condition holds; ``known`` are those it knows already.

        agent: who waits or fetches, one time after the other.  None: it cannot be told.
        """
        changes = self.changes
        first = next((i + 1 for i in range(len(changes) - 1, -1, -1) if known(changes[i].op)), 0)
        if not first and self.before is not None and holds(self.before):
            return []
        for index in range(max(first - 1, 0), len(changes)):
            value = changes[index].value
            if value is None:
                return None
            if holds(value):
                chain = changes[index + 1 - len(self._chain(index, agent)) : index + 1]
                spare = self._spare(chain, holds)
                if spare:
                    self.caught.pop(agent, None)  # a later wait may need them
                self._seen = index, [change for change in chain if change.op not in spare]
                return [change.op for change in self._seen[1]]
        return None

    def last_seen(self) -> tuple[list[Change], int | None, int | None]:
        """What ended the last wait: the changes, the value that they left, and the one before the first of them."""
        last, chain = self._seen
        first = self.changes.index(chain[0])
        return chain, self.changes[last].value, self.changes[first - 1].value if first else self.before

    def later(self, most: int) -> list[Change]:
        """The first changes after those that the last wait needed."""
        last = self._seen[0]
        return self.changes[last + 1 : last + 1 + most]

    def _spare(self, changes: list[Change], holds: Callable[[int], bool]) -> set[Op]:
        """Additions without which the condition would have held too."""
        value: Any = changes[-1].value if changes else None
        added = (change for change in changes if change.operator == "add" and change.operand)
        return {change.op for change in added if holds(self.wrap(value - change.operand))}

    def _chain(self, last: int, agent: int, mine: Op | None = None) -> list[Op]:
        """A change and those before it that it was based on, without those that the agent has acquired so before."""
        first, end = self.caught.get(agent, (0, 0))
        first, end = first - self.dropped, end - self.dropped
        if first <= last < end:
            return []
        start, least = last, end if 0 < end <= last else 0
        while start > least and self._continues(start, mine):
            start -= 1
        if agent:
            joins = start == end and self._continues(start, mine)
            self.caught[agent] = (first if joins else start) + self.dropped, last + 1 + self.dropped
        return [change.op for change in self.changes[start : last + 1]]

    def _continues(self, index: int, mine: Op | None) -> bool:
        change = self.changes[index]
        return not change.replaces or change.op is mine


class Words:
    """The words of all PEs that somebody waits for or fetches, by PE and address."""

    def __init__(self, changed: Callable[[Word], None]) -> None:
        self.known: dict[tuple[int, int], Word] = {}
        self.watched = Watched()
        self._changed = changed

    def at(self, key: tuple[int, int], size: int = 8) -> Word:
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Word(size)
        return found

    def change(self, op: Op, space: int, span: Span, operator: str, value: int | None) -> None:
        """An operation writes a span, in which there may be such words."""
        word = self.known.get((space, span[0]))
        if word is not None and len(span) == 2 and span[1] - span[0] == word.size:
            self._change(word, op, operator, value)
            return
        if not self.watched.any(space, (span,)):
            return
        for start, end in parts(span):
            keys = self.watched.within(space, start, end)
            if end - start > 8:
                for key in keys:
                    self._change(self.at(key), op, "store", None)
            elif keys and keys[0][1] == start:
                word = self.at((space, start))
                word.size = end - start
                self._change(word, op, operator, value)

    def _change(self, word: Word, op: Op, operator: str, value: int | None) -> None:
        word.change(op, operator, value)
        self._changed(word)


def signed(value: int, size: int) -> int:
    return value - (1 << 8 * size) if value >> 8 * size - 1 else value
