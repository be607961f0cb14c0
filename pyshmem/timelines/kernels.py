"""Records interpreted kernels: each launch, each of its programs, and the device calls that these make.

Kernels that run on a GPU are not recorded: their calls are no calls of Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from triton.runtime import interpreter

import pyshmem.device as dev
from pyshmem.device.arch.fields import decoded
from pyshmem.device.arch.interpreter.values import array, item_bytes, memory, number
from pyshmem.runtime import _native
from pyshmem.runtime.cpu_heap import cpu
from pyshmem.timelines.calls import effect
from pyshmem.timelines.events import ADD, BEFORE, FAR, KERNELS, MEET, NONE, SET, WAITS, WORD

Call = Callable[..., Any]
_QUERIES = ("my_pe", "n_pes", "ptr", "translate_pe")
_WORDS = ("sig_addr", "ivar", "ivars", "pointers", "dest")
_running: list[int] = []  # the events of the programs under way, the innermost kernel's last
_grids: list[int] = []  # their indices, as x + y * 2 ** 20 + z * 2 ** 40


def install(number_of: Callable[[str], int]) -> Callable[[], None]:
    """Record kernels from now on. number_of: the number of a name in events. Return what undoes that."""
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    made = [(builder, "set_grid_idx", _program(builder.set_grid_idx, number_of("program"))),
            (executor, "__call__", _kernel(executor.__call__, number_of))]  # fmt: skip
    for name in dev.__all__:  # type: ignore[attr-defined]
        call = getattr(dev, name)
        if (
            inspect.isfunction(call)
            and name not in _QUERIES
            and next(iter(inspect.signature(call).parameters), "") == "ctx"
        ):
            made.append((dev, name, _device_call(name, call, number_of(f"dev.{name}"))))
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in made]
    for owner, name, recorded in made:
        setattr(owner, name, recorded)

    def undo() -> None:
        for owner, name, call in before:
            setattr(owner, name, call)

    return undo


def _kernel(call: Call, number_of: Callable[[str], int]) -> Call:
    @wraps(call)
    def recorded(self: Any, *arguments: Any, **options: Any) -> Any:
        event = _begin(number_of(self.fn.__name__))
        _running.append(-1)
        _grids.append(0)
        failed = True
        try:
            found = call(self, *arguments, **options)
            failed = False
            return found
        finally:
            _native.end_event(_running.pop(), failed)
            _grids.pop()
            _native.end_event(event, failed)

    return recorded


def _program(call: Call, name: int) -> Call:
    """The interpreter runs the programs one after the other, and sets the index of each before it."""

    @wraps(call)
    def recorded(self: Any, x: int, y: int, z: int) -> Any:
        if _running:
            _native.end_event(_running[-1], False)
            _grids[-1] = x | y << 20 | z << 40
            _running[-1] = _begin(name, value=_grids[-1], place=1)
        return call(self, x, y, z)

    return recorded


def _begin(name: int, pe: int = -1, nbytes: int = 0, flags: int = 0, place: int = 0, value: int = 0,
           before: int = 0, op: int = NONE) -> int:  # fmt: skip
    return _native.begin_event(name, KERNELS, pe, nbytes, flags, place, value, before, op)


def _device_call(name: str, call: Call, event_name: int) -> Call:
    signature, op = inspect.signature(call), effect(name)

    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        try:
            details = _details(op, signature.bind(*arguments, **options).arguments)
        except (AttributeError, KeyError, TypeError, ValueError):  # what is wrong is for the call itself to say
            details = {}
        event, failed = _begin(event_name, **details), True
        try:
            found = call(*arguments, **options)
            failed = False
            return found
        finally:
            _native.end_event(event, failed)

    return recorded


def _details(op: int, given: dict[str, Any]) -> dict[str, int]:
    """What a call does, as _native.begin_event takes it. given: its arguments by their names."""
    ctx = given["ctx"]
    start, step, n_pes = (int(decoded(number(each))) for each in (ctx.start, ctx.step, ctx.n_pes))
    found: dict[str, int] = {"flags": 0, "op": op}
    if op == MEET:
        return found | {"place": start << 42 | step << 21 | n_pes, "value": _grids[-1]}
    if "pe" in given and array(given["pe"]).size == 1:
        found["pe"] = start + int(number(given["pe"])) * step
        found["flags"] |= FAR if found["pe"] in cpu.far_deltas else 0
    data = given.get("source", given.get("dest"))
    if data is not None and "nelems" in given:
        found["nbytes"] = int(number(given["nelems"])) * item_bytes(data)
    word = _first(given, *_WORDS) if op in (SET, ADD, WAITS) else None
    if word is not None and array(word).size == 1:
        found |= _of_word(word, op, given, found)
    return found


def _first(given: dict[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if name in given), None)


def _of_word(word: Any, op: int, given: dict[str, Any], found: dict[str, int]) -> dict[str, int]:
    value = _first(given, "signal", "value")
    known = {"place": int(number(word)) - cpu.base, "flags": found["flags"] | WORD}
    known["value"] = 1 if value is None else int(number(value))
    known["nbytes"] = found.get("nbytes", item_bytes(word))
    if op == WAITS:
        known["op"] = WAITS + int(number(given["cmp"]))
        if "nelems" in given:
            known["nbytes"] = int(number(given["nelems"])) * item_bytes(word)
        else:
            known |= {"before": int(memory(word, 1)[0]), "flags": known["flags"] | BEFORE}
    elif "sig_op" in given:
        known["op"] = ADD if int(number(given["sig_op"])) == 1 else SET
    return known
