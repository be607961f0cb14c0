"""What an agent knows: for each stream of operations the number up to which all have happened, and single ones beyond it.

A stream is what one agent does in one respect: its own accesses, its stores, its operations on one PE through one context,
its non-blocking operations. The numbers of a stream are the epochs of FastTrack (Flanagan and Freund, 2009).
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Message(NamedTuple):
    """What a release carries to whoever acquires it."""

    upto: dict[int, int]
    single: dict[int, set[int]]

    def also(self, stream: int, number: int) -> Message:
        """A message that says of one more operation that it has happened."""
        return Message(self.upto, {**self.single, stream: self.single.get(stream, set()) | {number}})


def together(first: Message, second: Message) -> Message:
    """What at least one of two messages says."""
    upto, single = dict(first.upto), dict(first.single)
    for stream, number in second.upto.items():
        upto[stream] = max(number, upto.get(stream, 0))
    for stream, numbers in second.single.items():
        single[stream] = single.get(stream, set()) | numbers
    return Message(upto, single)


class Meeting:
    """A collective of a team: of each PE that has entered, its number, what it releases, line, name and signature.

    The last of a row is what the PE has written at once into the targets of others: by PE, the stream and its number.
    """

    def __init__(self) -> None:
        self.entered: list[tuple[int, Message, int, str, Any, dict[int, tuple[int, int]]]] = []
        self.left = 0


class Knowledge:
    """Grows only."""

    __slots__ = ("single", "upto")

    def __init__(self, upto: dict[int, int], single: dict[int, set[int]]) -> None:
        self.upto, self.single = upto, single

    def knows(self, stream: int, number: int) -> bool:
        if self.upto.get(stream, 0) >= number:
            return True
        return stream in self.single and number in self.single[stream]

    def join(self, message: Message) -> None:
        mine = self.upto
        for stream, number in message.upto.items():
            if number > mine.get(stream, 0):
                mine[stream] = number
                if stream in self.single:
                    self._settle(stream)
        for stream, numbers in message.single.items():
            self.single[stream] = self.single.get(stream, set()) | numbers
            self._settle(stream)

    def learn(self, stream: int, number: int) -> None:
        """One operation alone, as a signal says of its own data."""
        if not self.knows(stream, number):
            self.single[stream] = self.single.get(stream, set()) | {number}
            self._settle(stream)

    def _settle(self, stream: int) -> None:
        """Single numbers that follow the prefix become part of it."""
        end, numbers = self.upto.get(stream, 0), self.single[stream]
        while end + 1 in numbers:
            end += 1
        left = {number for number in numbers if number > end}
        if end:
            self.upto[stream] = end
        if left:
            self.single[stream] = left
        else:
            del self.single[stream]

    def forget(self, streams: set[int]) -> None:
        for stream in streams:
            self.upto.pop(stream, None)
            self.single.pop(stream, None)
