"""The steps of a replay: pieces of the time of a thread, and the moments that they wait for."""

from __future__ import annotations

from typing import NamedTuple

from pyshmem.timelines.taxes import Call

BEGIN, END = "begin", "end"


class Moment(NamedTuple):
    """When a call begins or ends; without a call, when the kernels of ``pe`` begin or end to be busy for the number-th time.

    track: of them, those programs alone.
    """

    which: str
    call: Call | None
    pe: int
    number: int = -1
    track: int = -1


class Step(NamedTuple):
    """A piece of a thread's time, in which the same calls are under way. Times are in microseconds."""

    begin: float
    end: float
    part: str
    call: Call | None  # the innermost
    opens: bool  # whether the call begins and ends with it
    closes: bool
    after: tuple[
        tuple[Moment, float], ...
    ] = ()  # it ends so long after each of these moments, and has no length of its own
    reaches: Moment | None = None  # at its end


class Thread(NamedTuple):
    """What does one thing after the other. track: of a multiprocessor's programs or of a stream; HOST or BUSY."""

    pe: int
    track: int


HOST, BUSY = -1, -2  # the main thread of a PE with its interpreted kernels; when the compiled ones of a PE are busy


def moment(which: str, call: Call) -> Moment:
    return Moment(which, call, call.pe)
