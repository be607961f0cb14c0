"""Waits that another change of their word may end as well: such a wait tells what all these executions tell in common.

Two signals to one word arrive in either order, unless a fence or an answer orders them. A wait that counts them, or that a
later value satisfies too, may therefore end before the signal has come that ended it in this run. Whether there is such a
change is known only after the wait: the analysis collects these waits, and then reads the records again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from pyshmem.check.analyse.agents import Agent, Streams
from pyshmem.check.analyse.clocks import Message, together
from pyshmem.check.analyse.words import Change, Word

_MOST = 8  # of a word: waits that may still be doubted
_LATER = 64  # changes that had come by the time of the wait, and that it did not need
_OF_A_LINE = 32  # waits of one line that are doubted: one of them is enough for a report


class Doubt(NamedTuple):
    """``message`` is what the wait tells in all executions, ``all`` what it told in this one.

    sites: of the change that ended it, of one that may have come before, and of the wait.
    """

    message: Message
    all: Message
    sites: tuple[int, int, int]


class Wait:
    """A wait that has ended, and the changes of its word by which it has; ``value`` is what was there then."""

    def __init__(self, number: int, agent: Agent, site: int, holds: Callable[[int], bool], word: Word) -> None:
        self.number, self.agent, self.site, self.holds = number, agent, site, holds
        self.clock = agent.own.number
        self.changes, self.value, self.before = word.last_seen()
        self.executions: list[Message] = []
        self.sites = (0, 0, site)

    def consider(self, change: Change, word: Word, streams: Streams) -> None:
        """A change that this wait need not have waited for: whether it may have come in place of one that it has."""
        message = change.op.message
        if message is None or change.operand is None or change in self.changes:
            return
        if streams.told(message, self.agent.own.id, self.clock):
            return
        for each in self.changes:
            if not streams.told(message, each.op.stream, each.op.number) and self._ends_without(each, change, word):
                self.sites = each.op.site, change.op.site, self.site
                rest = [] if change.replaces else [other for other in self.changes if other is not each]
                self.executions.append(_told_by([*rest, change]))

    def _ends_without(self, missing: Change, change: Change, word: Word) -> bool:
        """Whether the condition holds with ``change``, and without ``missing``."""
        if change.replaces:
            return self.holds(word.wrap(change.operand or 0))
        if change.operator != "add" or self.value is None:
            return False
        lost = missing.operand
        if missing.replaces:
            lost = None if self.before is None or missing.value is None else missing.value - self.before
        elif missing.operator != "add":
            lost = None
        return lost is not None and self.holds(word.wrap(self.value - lost + (change.operand or 0)))


def _told_by(changes: list[Change]) -> Message:
    """What a wait knows that has seen these changes."""
    told = Message({}, {})
    for change in changes:
        if change.op.message is not None:
            told = together(told, change.op.message.also(change.op.stream, change.op.number))
    return told


class Doubts:
    """The waits of a job that may have ended otherwise. ``known``: by their numbers, those of an earlier reading."""

    def __init__(self, streams: Streams, known: dict[int, Doubt]) -> None:
        self.known = known
        self._streams = streams
        self._count = 0
        self._open: dict[Word, deque[Wait]] = {}
        self._late: dict[Word, Change] = {}  # the last change, whose message may not be whole yet
        self._found: dict[int, Wait] = {}
        self._lines: Counter[int] = Counter()

    def next(self) -> Doubt | None:
        """What is known of the next wait."""
        self._count += 1
        return self.known.get(self._count)

    def watch(self, agent: Agent, site: int, holds: Callable[[int], bool], word: Word) -> None:
        """A wait has ended by operations that its agent did not know."""
        if self._lines[site] >= _OF_A_LINE:
            return
        self._settle(word)
        wait = Wait(self._count, agent, site, holds, word)
        self._open.setdefault(word, deque(maxlen=_MOST)).append(wait)
        for change in word.later(_LATER):
            self._consider(wait, change, word)

    def changed(self, word: Word) -> None:
        """A word has changed."""
        if word in self._open:
            self._settle(word)
            self._late[word] = word.changes[-1]

    def _settle(self, word: Word) -> None:
        change = self._late.pop(word, None)
        if change is not None:
            for wait in self._open[word]:
                self._consider(wait, change, word)

    def _consider(self, wait: Wait, change: Change, word: Word) -> None:
        wait.consider(change, word, self._streams)
        if wait.executions and wait.number not in self._found:
            self._found[wait.number] = wait
            self._lines[wait.site] += 1

    def streams(self) -> set[int]:
        """Return the streams with which later changes are compared: of waits that may be doubted, and of what ended them."""
        waits = [wait for open_waits in self._open.values() for wait in open_waits]
        return {wait.agent.own.id for wait in waits} | {each.op.stream for wait in waits for each in wait.changes}

    def found(self) -> dict[int, Doubt]:
        """What the waits tell for certain, after the last event."""
        for word in list(self._late):
            self._settle(word)
        found = {}
        for number, wait in self._found.items():
            told = certain = _told_by(wait.changes)
            for other in wait.executions:
                certain = self._streams.common(certain, other)
            found[number] = Doubt(certain, told, wait.sites)
        return found
