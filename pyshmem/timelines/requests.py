"""Joins a call with what executes it elsewhere: a far PE's service, the proxy of kernels, or a copy engine.

A request is known by the PE that sends it, what executes it, and its number there. The event of a call has the requests that
it has sent, if all went to one PE: see take_sent in trace/carried.h.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyshmem.timelines.events import COPIES, SENT, SERVICE, Event

TO_COPIES = 0xFFFE  # in place of a PE: copies on streams
_NUMBERS = 1 << 32  # after which they begin again


def sent_by(event: Event) -> tuple[int, Iterable[int]]:
    """(the PE, or TO_COPIES, the numbers of the requests to it) of an event with SENT."""
    pe, more, last = (event.before >> 48 & 0xFFFF) - 1, event.before >> 32 & 0xFFFF, event.before & 0xFFFFFFFF
    return pe, (number % _NUMBERS for number in range(last - more, last + 1))


def executed(events: Iterable[Event]) -> Iterator[tuple[Event, Event]]:
    """Pairs of a call and the event of a request, or a copy, that it has sent."""
    known: dict[tuple[int, int, int], Event] = {}
    senders = []
    for each in events:
        if each.track == SERVICE:
            known[each.to, each.pe, each.value % _NUMBERS] = each
        elif each.track == COPIES:
            known[each.pe, TO_COPIES, each.value % _NUMBERS] = each
        if each.flags & SENT:
            senders.append(each)
    for sender in senders:
        pe, numbers = sent_by(sender)
        for number in numbers:
            found = known.get((sender.pe, pe, number))
            if found:
                yield sender, found
