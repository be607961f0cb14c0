"""The events of a job in the order of their times, from the records of its PEs: one or two of each record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter

from pyshmem.check.trace import FENCE, IN_KERNEL, QUIET, Record

_LATE = 1 << 14  # records of other threads that may be written while a call is under way
_FEW = 1024  # events that are handled before memory is looked at
_time = itemgetter(0)
Event = Record  # (time, kind, PE, line in the findings, and what the record says)


def events(trace: Iterable[Record], pe: int, sites: dict[int, int]) -> Iterator[list[Event]]:
    """The events of a PE, with its number and those of its lines in the findings: lists, each by time."""
    waiting: list[Event] = []
    for record in trace:
        kind = record[1]
        if kind in _TWO:
            waiting += _TWO[kind](record, pe, sites.get(record[2], 0))
        elif kind not in _NO_EVENTS:
            waiting.append((record[0], kind, pe, sites.get(record[2], 0), *record[3:]))
        if len(waiting) >= 2 * _LATE:
            waiting.sort(key=_time)
            yield waiting[:_LATE]
            del waiting[:_LATE]
    waiting.sort(key=_time)
    if waiting:
        yield waiting


def _met(record: Record, pe: int, site: int) -> list[Event]:
    """A collective begins and ends."""
    time, kind, _, key, name, signature, way, root, reads, end, writes = record
    enters, exits = _MET[kind]
    begin = time, enters, pe, site, key, name, signature, way, root, reads, writes
    return [begin, (end, exits, pe, site, key, name, writes)]


def _amo(record: Record, pe: int, site: int) -> list[Event]:
    """An atomic operation ends when it has told what it has found."""
    event = (*record[:2], pe, site, *record[3:])
    if not record[10]:
        return [event]
    begin, kind, _, _, _, target, start, _, operator, operand, (time, old, condition), _ = record
    return [event, (time, _ENDS[kind], pe, site, begin, target, start, operator, operand, old, condition)]


_NO_EVENTS = ("site", "init")
_PREFIXES = [(order, whose) for whose in ("", IN_KERNEL) for order in ("", FENCE, QUIET)]
_MET = {order + whose + "met": (order + whose + "enter", whose + "exit") for order, whose in _PREFIXES}
_ENDS = {order + whose + "amo": whose + "amo_end" for order, whose in _PREFIXES}
_TWO = {**dict.fromkeys(_MET, _met), **dict.fromkeys(_ENDS, _amo)}


def in_order(parts: list[Iterator[list[Event]]]) -> Iterator[list[Event]]:
    """The events of all PEs by their times, in lists. A call is written when it returns, with the time of its begin."""
    heads = [next(part, []) for part in parts]
    while any(heads):
        upto = min(head[-1][0] for head in heads if head)
        batch = []
        for i, head in enumerate(heads):
            cut = bisect_right(head, upto, key=_time)
            batch += head[:cut]
            heads[i] = head[cut:] or (next(parts[i], []) if cut else [])
        batch.sort(key=_time)
        for at in range(0, len(batch), _FEW):
            yield batch[at : at + _FEW]
