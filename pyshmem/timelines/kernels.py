"""Records interpreted kernels: each launch and each of its programs. Device calls record themselves: see
pyshmem.device.arch.interpreter.events.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from triton.runtime import interpreter

from pyshmem.device.arch.interpreter import events
from pyshmem.native import _native
from pyshmem.timelines.events import KERNELS, NONE

Call = Callable[..., Any]
_running: list[int] = []  # the events of the programs under way, the innermost kernel's last


def install(number_of: Callable[[str], int]) -> Callable[[], None]:
    """Record kernels from now on. number_of: the number of a name in events. Return what undoes that."""
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    made = [(builder, "set_grid_idx", _program(builder.set_grid_idx, number_of("program"))),
            (executor, "__call__", _kernel(executor.__call__, number_of))]  # fmt: skip
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in made]
    for owner, name, recorded in made:
        setattr(owner, name, recorded)
    events.recording.number_of = number_of

    def undo() -> None:
        events.recording.number_of = None
        for owner, name, call in before:
            setattr(owner, name, call)

    return undo


def _kernel(call: Call, number_of: Callable[[str], int]) -> Call:
    @wraps(call)
    def recorded(self: Any, *arguments: Any, **options: Any) -> Any:
        event = _begin(number_of(self.fn.__name__))
        _running.append(-1)
        failed = True
        try:
            found = call(self, *arguments, **options)
            failed = False
            return found
        finally:
            events.fail_events()
            _native.end_event(_running.pop(), failed)
            _native.end_event(event, failed)

    return recorded


def _program(call: Call, name: int) -> Call:
    """The interpreter runs the programs one after the other, and sets the index of each before it."""

    @wraps(call)
    def recorded(self: Any, x: int, y: int, z: int) -> Any:
        if _running:
            _native.end_event(_running[-1], False)
            _running[-1] = _begin(name, value=x | y << 20 | z << 40, place=1)
        return call(self, x, y, z)

    return recorded


def _begin(name: int, place: int = 0, value: int = 0) -> int:
    return _native.begin_event(name, KERNELS, -1, 0, 0, place, value, 0, NONE)
