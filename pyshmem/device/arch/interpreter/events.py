"""Events of interpreted kernels, in the file of the host's events. Without a timeline these functions do nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import triton.language as tl

from pyshmem.base import layout
from pyshmem.device.arch.fields import decoded
from pyshmem.device.arch.interpreter.checks import check_waited
from pyshmem.device.arch.interpreter.values import array, item_bytes, number
from pyshmem.device.arch.rules import kind_of, kind_of_write, size_of, text_of
from pyshmem.memory.cpu_heap import cpu
from pyshmem.native import _native

TRACK = 1  # of kernels, in events
_FAR, _ON_GPU = layout.numbers("EVENT_FAR", "EVENT_ON_GPU")


class Recording:
    """Whether events are recorded. number_of: gives the number of a name in events; None if they are not."""

    number_of: Callable[[str], int] | None = None
    running: list[int]  # the events that have begun and not ended, of a call that fails too

    def __init__(self) -> None:
        self.running = []


recording = Recording()


def if_recorded(begin: Callable[..., int]) -> Callable[..., int]:
    """Return ``begin`` as a function that does nothing, and returns -1, where no timeline is recorded."""

    @wraps(begin)
    def begun(*arguments: Any) -> int:
        return -1 if recording.number_of is None else begin(*arguments)

    return begun


@if_recorded
def begin_call(ctx: Any, routine: str, pe: Any = None, data: Any = None, nelems: Any = 1) -> int:
    """Begin the event of a call, with the bytes of ``nelems`` elements of data: a pointer, a tile or a block of pointers."""
    return _begin(ctx, f"dev.{routine}", 0, pe, data, nelems)


@if_recorded
def begin_write(ctx: Any, routine: str, op: str, word: Any, value: Any, pe: Any, data: Any, nelems: Any) -> int:
    """Begin the event of a call that writes a word: op is "set" or "add". A block of words is not named."""
    kind = kind_of_write(op, word)
    if not kind:
        return begin_call(ctx, routine, pe, data, nelems)
    return _begin(ctx, f"dev.{routine}", kind, pe, data, nelems, _offset(word), value)


@if_recorded
def begin_wait(ctx: Any, routine: str, argument: str, word: Any, cmp: Any, value: Any) -> int:
    """Begin the event of a wait for one word, with what the word is as it begins. Errors: those of wait."""
    element, comparison = check_waited(routine, argument, word, cmp)
    event = _begin(ctx, f"dev.{routine}", kind_of("wait", comparison), None, word, 1, _offset(word), value)
    _native.look_at(event, int(number(word)), item_bytes(word), element.startswith("u"))
    return event


@if_recorded
def begin_waits(ctx: Any, routine: str, words: Any, nelems: Any, cmp: Any, value: Any) -> int:
    """Begin the event of a wait for several words, all by one value."""
    return _begin(ctx, f"dev.{routine}", kind_of("waits", number(cmp)), None, words, nelems, _offset(words), value)


@if_recorded
def begin_meeting(ctx: Any, routine: str, data: Any = None, nelems: Any = 1) -> int:
    """Begin the event of a call that all PEs of the team make."""
    start, step, n_pes = (int(decoded(number(each))) for each in (ctx.start, ctx.step, ctx.n_pes))
    x, y, z = (int(number(tl.program_id(axis))) for axis in range(3))
    team, program = start << 42 | step << 21 | n_pes, x | y << 20 | z << 40
    return _begin(ctx, f"dev.{routine}", kind_of("meet", 0), None, data, nelems, team, program)


def begin_span(ctx: Any, name: str) -> int:
    """Begin a span of the program's own. Errors: ArgumentError for a wrong name."""
    text_of(name)
    return -1 if recording.number_of is None else _begin(ctx, name, kind_of("span", 0))


def end_event(ctx: Any, event: int) -> None:
    """End the event now."""
    if recording.number_of is not None:
        _native.end_event(event, False)
        recording.running.remove(event)


def fail_events() -> None:
    """End the events of calls that have raised an exception."""
    while recording.running:
        _native.end_event(recording.running.pop(), True)


def _offset(word: Any) -> int:
    return int(number(word)) - cpu.base


def _begin(ctx: Any, name: str, kind: int, pe: Any = None, data: Any = None, nelems: Any = 1,
           place: int = 0, value: Any = 0, before: int = 0) -> int:  # fmt: skip
    to, flags = -1, kind >> 8 & ~_ON_GPU
    if pe is not None and array(pe).size == 1 and number(pe) >= 0:
        to = int(decoded(number(ctx.start)) + number(pe) * decoded(number(ctx.step)))
        flags |= _FAR if to in cpu.far_deltas else 0
    nbytes = 0 if data is None else int(number(nelems)) * size_of(data)
    words = place, int(number(value)), before, kind & 255
    event = _native.begin_event(recording.number_of(name), TRACK, to, nbytes, flags, *words)
    recording.running.append(event)
    return event
