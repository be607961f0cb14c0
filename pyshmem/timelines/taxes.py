"""Where the time of each PE went, by the calls of a timeline. The parts sum to the whole.

At each moment the innermost call of a PE's main thread counts. A wait that an arrow ends is for the PE that ended it, a
meeting of a team for its last member until that one has come; what remains of a meeting is communication. While the PE that
is waited for waits itself, the one that it waits for is the cause.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyshmem.timelines.tracks import COPIES_FROM, OF_GPU

COMPUTING, LAUNCHES, GPU, WAITING, MEETING, COMMUNICATION, LIBRARY = PARTS = (
    "computing",  # outside of calls, and in kernels outside of device calls
    "between kernels",  # outside of calls, after a kernel and before the next one
    "waits for GPU",  # outside of calls, while this PE's GPU works, if it has nothing to do when the host goes on
    "waits",  # for a word that another PE writes
    "meetings",  # in barriers, collectives and finalize, until the last member came
    "communication",  # in puts, gets, atomics, quiet, and in collectives from then on
    "library",  # other calls: allocation, teams, launches
)
_COMMUNICATES = ("put", "get", "atomic", "order", "meet")
_OWNERS = ("kernel", "operator")
_PAUSE = 0.5  # us between programs in which the GPU counts as busy
_LONGEST = 200  # PEs of a chain of causes that is followed
OF_LIBRARY = ("shmem.launch", "shmem.finalize")  # meetings that move no data


class Call(NamedTuple):
    """A slice of the timeline. Times are in microseconds."""

    begin: float
    end: float
    pe: int
    track: int
    name: str
    kind: str
    team: str = ""
    ended_by: int | None = None
    nbytes: int = 0
    to: int = -1  # the PE of its data
    plan: str = ""  # which performed an operator
    within: int = 0  # bytes that kernels of it wrote and later ones of it read
    earlier: tuple[tuple[str, int], ...] = ()  # bytes that it read again, by the calls that wrote them


class Arrow(NamedTuple):
    """From a call of ``source`` on its track, at ``begun``, to a wait of ``pe``, at ``ended``.

    sends: it goes to the begin of a request or a copy that the call has sent, instead.
    """

    source: int
    source_track: int
    begun: float
    pe: int
    track: int
    ended: float
    sends: bool = False


class Taxes(NamedTuple):
    """Microseconds: parts by PE and part; by_owner by kernel or operator too; waited by PE and whom it waited for."""

    whole: dict[int, float]
    parts: dict[int, dict[str, float]]
    by_owner: dict[str, dict[int, dict[str, float]]]
    waited: dict[int, dict[int, float]]


def call_of(row: dict[str, Any]) -> Call:
    """The call of a slice."""
    end = row["ts"] + row["dur"]
    details = row["args"]
    known = row["pid"], row["tid"], row["name"], row["cat"], details.get("team", ""), details.get("ended_by")
    again = details.get("plan", ""), details.get("read_again_within", 0), tuple(details.get("read_again", {}).items())
    return Call(row["ts"], end, *known, details.get("bytes", 0), details.get("pe", -1), *again)


def _none() -> dict[str, float]:
    return dict.fromkeys(PARTS, 0.0)


def divided(calls: list[Call]) -> Taxes:
    """Divide the time of each PE, from the first call of any PE to the last one's end."""
    taxes = Taxes({}, {}, {}, {})
    if not calls:
        return taxes
    span = min(each.begin for each in calls), max(each.end for each in calls)
    meetings = last_to_come(calls)
    waits: dict[int, list[tuple[float, float, int]]] = {}  # by PE: from when to when, for whom
    for pe in sorted({each.pe for each in calls}):
        own = main_thread([each for each in calls if each.pe == pe])
        kernels = [each for each in own if each.kind == "kernel"]
        gaps = min((each.end for each in kernels), default=span[1]), max((each.begin for each in kernels), default=0.0)
        busy = merged(sorted((each.begin, each.end) for each in calls if each.pe == pe and is_of_gpu(each)), _PAUSE)
        taxes.whole[pe] = span[1] - span[0]
        parts, taxes.waited[pe], waits[pe] = taxes.parts.setdefault(pe, _none()), defaultdict(float), []
        for begin, end, stack in moments(own, *span):
            owner = next((each.name for each in stack if each.kind in _OWNERS), None)
            by_owner = taxes.by_owner.setdefault(owner, {}).setdefault(pe, _none()) if owner else _none()
            between = gaps[0] <= begin and end <= gaps[1]
            awaited = 0.0 if stack else _awaited(busy, begin, end)
            parts[GPU] += awaited
            for part, time, who in _parts_of(begin + awaited, end, stack, meetings, between):
                parts[part] += time
                by_owner[part] += time
                if who is not None:
                    waits[pe].append((begin, begin + time, who))
    for pe, own_waits in waits.items():
        for begin, end, who in own_waits:
            for cause, time in _causes(waits, begin, end, who, {pe}):
                taxes.waited[pe][cause] += time
    return taxes


def is_of_gpu(call: Call) -> bool:
    return call.kind == "copy" or OF_GPU <= call.track < COPIES_FROM


def merged(spans: Iterable[tuple[float, float]], pause: float) -> list[tuple[float, float]]:
    """The times that are in one of the spans, which are sorted, or in a shorter time than ``pause`` between them."""
    found: list[tuple[float, float]] = []
    for begin, end in spans:
        if found and begin - found[-1][1] <= pause:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _awaited(busy: list[tuple[float, float]], begin: float, end: float) -> float:
    """How long a host, in no call from begin to end, has waited for its GPU: none if the GPU has work at the end."""
    time, place = 0.0, bisect_left(busy, (end,)) - 1
    if place < 0 or busy[place][1] > end:
        return 0.0
    while place >= 0 and busy[place][1] > begin:
        time += busy[place][1] - max(busy[place][0], begin)
        place -= 1
    return time


def _causes(
    waits: dict[int, list[tuple[float, float, int]]], begin: float, end: float, who: int, known: set[int]
) -> Iterator[tuple[int, float]]:
    """Whom a wait for ``who`` was for: while that PE waited itself, for the one that it waited for."""
    every = waits.get(who, [])
    for start, stop, other in every[max(0, bisect_left(every, (begin,)) - 1) :]:
        if start >= end:
            break
        start, stop = max(start, begin), min(stop, end)
        if stop > start and other not in known and len(known) < _LONGEST:
            if start > begin:
                yield who, start - begin
            yield from _causes(waits, start, stop, other, known | {who})
            begin = stop
    if end > begin:
        yield who, end - begin


def main_thread(calls: list[Call]) -> list[Call]:
    """The calls of the thread, host's and kernels' alike, that has made most."""
    threads = Counter(each.track // 4 for each in calls if each.track < OF_GPU)
    most = max(threads, key=lambda each: threads[each], default=-1)
    return [each for each in calls if each.track // 4 == most]


def moments(calls: list[Call], start: float, end: float) -> Iterator[tuple[float, float, list[Call]]]:
    """The intervals in which the same calls are under way, with them, the innermost last."""
    stack: list[Call] = []
    time = start
    for call in [*sorted(calls, key=lambda each: (each.begin, -each.end)), None]:
        until = call.begin if call else end
        while stack and stack[-1].end <= until:
            inner = stack[-1]
            if inner.end > time:
                yield time, inner.end, stack
                time = inner.end
            stack.pop()
        if until > time:
            yield time, until, stack
            time = until
        if call:
            stack.append(call)


def _parts_of(
    begin: float, end: float, stack: list[Call], last_to_come: dict[Call, Call], between: bool
) -> Iterator[tuple[str, float, int | None]]:
    """(part, time, the PE that was waited for) of an interval. between: whether it lies between two kernels."""
    call = stack[-1] if stack else None
    if call and call.kind == "meet" and call in last_to_come:
        last = last_to_come[call]
        came = min(end, max(begin, last.begin))
        yield MEETING, came - begin, last.pe if last.pe != call.pe else None
        yield LIBRARY if call.name in OF_LIBRARY else COMMUNICATION, end - came, None
    else:
        part = part_of(call, between)
        yield part, end - begin, call.ended_by if call and part == WAITING else None


def part_of(call: Call | None, between: bool) -> str:
    """The part of the time in which this call is the innermost one. between: whether it lies between two kernels."""
    if call is None or call.kind == "operator":
        return LAUNCHES if between else COMPUTING
    if call.kind == "wait":
        return WAITING
    if call.kind in _COMMUNICATES:
        return COMMUNICATION
    return COMPUTING if call.kind in ("kernel", "program", "span", "torch") else LIBRARY


class Link(NamedTuple):
    """What a PE has put to another one, or got from it: in calls, bytes and microseconds in which such a call ran."""

    calls: int
    nbytes: int
    time: float

    @property
    def rate(self) -> float:
        """GB/s while busy."""
        return self.nbytes / self.time / 1e3 if self.time else 0.0


def links(calls: list[Call]) -> dict[tuple[int, int], Link]:
    """Return the links by (PE that calls, PE that has the data)."""
    found: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for call in calls:
        if call.kind in ("put", "get") and call.nbytes and call.to >= 0 and call.to != call.pe:
            found[call.pe, call.to].append(call)
    return {
        pair: Link(len(own), sum(each.nbytes for each in own), _covered(own)) for pair, own in sorted(found.items())
    }


def _covered(calls: list[Call]) -> float:
    """The time in which at least one of the calls ran."""
    time, until = 0.0, float("-inf")
    for call in sorted(calls):
        time += max(0.0, call.end - max(call.begin, until))
        until = max(until, call.end)
    return time


def last_to_come(calls: list[Call]) -> dict[Call, Call]:
    """Return for each call of a team the same call of the member that came last. Members make their calls in one order."""
    numbers: Counter[tuple[int, str]] = Counter()
    meetings: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in sorted(calls):
        if call.kind == "meet":
            numbers[call.pe, call.team] += 1
            meetings[call.team, numbers[call.pe, call.team]].append(call)
    return {each: max(met) for met in meetings.values() if len(met) > 1 for each in met}
