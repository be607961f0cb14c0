"""What kernels of pyshmem's own signal and wait for below the device calls: the flags of a team's members, recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any

import numpy as np

from pyshmem.base.comparisons import GE
from pyshmem.check.record.device_calls import meet
from pyshmem.check.record.recording import hidden, recorder
from pyshmem.check.trace import now
from pyshmem.device.arch.interpreter.values import array, decoded, number

Call = Callable[..., Any]


def install(arch: ModuleType) -> None:
    """Record them from now on."""
    for name, made in (
        ("synchronise", _synchronise),
        ("tell_all", _tell),
        ("tell_member", _tell),
        ("await_all", _await),
        ("await_member", _await),
        ("store_words", _store_words),
        ("await_words", _await_words),
    ):
        setattr(arch, name, made(getattr(arch, name)))


def _synchronise(call: Call) -> Call:
    @wraps(call)
    def recorded(ctx: Any, routine: Any) -> None:
        if recorder.idle:
            call(ctx, routine)
        else:
            meet(ctx, "barrier_all", "barrier", partial(call, ctx, routine))

    return recorded


def _members(ctx: Any, given: tuple[Any, ...]) -> list[int]:
    return [int(number(given[0]))] if given else list(range(int(decoded(number(ctx.n_pes)))))


def _tell(call: Call) -> Call:
    @wraps(call)
    def recorded(ctx: Any, address: Any, value: Any, *pe: Any) -> None:
        if recorder.idle:
            call(ctx, address, value, *pe)
            return
        time = now()
        hidden(call, ctx, address, value, *pe)
        start, step, me = (int(decoded(number(each))) for each in (ctx.start, ctx.step, ctx.me))
        word = recorder.at(int(number(address)) + 8 * me, 8)[1]
        for member in _members(ctx, pe):
            recorder.write(time, "signal", call.__name__, start + member * step, word, "set", int(number(value)))

    return recorded


def _await(call: Call) -> Call:
    @wraps(call)
    def recorded(ctx: Any, routine: Any, address: Any, value: Any, *pe: Any) -> None:
        first = int(number(address))
        words = [first + 8 * member for member in _members(ctx, pe)]
        _wait(call, words, int(number(value)), ctx, routine, address, value, *pe)

    return recorded


def _wait(call: Call, words: list[int], value: int, *given: Any) -> Any:
    """A wait until words of int64 at these addresses have reached ``value``."""
    if recorder.idle or not words:
        return call(*given)
    rows = [(recorder.at(word, 8)[1], 8, True, GE, value) for word in words]
    recorder.write(now(), "waits", call.__name__, rows)
    found = hidden(call, *given)
    recorder.write(now(), "wait", rows, call.__name__)
    return found


def _store_words(call: Call) -> Call:
    """Words that are their own flags."""

    @wraps(call)
    def recorded(ctx: Any, address: Any, places: Any, later: Any, words: Any, mark: Any, mask: Any) -> None:
        time = now()
        call(ctx, address, places, later, words, mark, mask)
        lanes = array(places)[np.flatnonzero(array(mask))]
        if not recorder.idle and lanes.size:
            ranges = recorder.each(int(number(address)) + int(number(later)) + 8 * lanes.astype(np.int64), 8)
            recorder.write(time, "words", call.__name__, ranges[0][0], [span for _, *span in ranges])

    return recorded


def _await_words(call: Call) -> Call:
    @wraps(call)
    def recorded(ctx: Any, routine: Any, address: Any, places: Any, mark: Any, mask: Any, count: Any) -> Any:
        first, lanes = int(number(address)), array(places)[np.flatnonzero(array(mask))]
        last = decoded(number(ctx.n_pes)) - 1
        members = {min(member, last) for member in range(getattr(count, "value", count))}
        words = [first + member * number(ctx.piece) + 8 * int(lane) for member in members for lane in lanes]
        return _wait(call, words, number(mark) << 32, ctx, routine, address, places, mark, mask, count)

    return recorded
