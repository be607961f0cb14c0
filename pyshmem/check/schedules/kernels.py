"""Other executions of interpreted kernels, for --check=schedules: programs in turns, and what they send or store comes late.

It stands below the device functions: those of pyshmem.device.arch move data, after all arguments have been checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial, wraps
from math import inf
from typing import Any

import numpy as np
from triton.runtime import interpreter

import pyshmem.device as dev
from pyshmem.base.far import SHIFT
from pyshmem.base.job import job
from pyshmem.check.schedules.effects import STORES, Schedule
from pyshmem.check.schedules.interleaving import Grid, Program
from pyshmem.device import arch
from pyshmem.device.arch.interpreter.values import array, item_bytes, number
from pyshmem.memory.cpu_heap import cpu
from pyshmem.native import _native

Call = Callable[..., Any]
_MEETINGS = ("synchronise", "await_all", "await_member", "await_parts", "await_words")
_AT_ONCE = (
    "copy_from", "copy_blocks_from", "copy_blocks_to", "read", "load_block", "fetch", "store_number", "store_words",
)  # fmt: skip
_grids: list[Grid] = []


def install(schedule: Schedule) -> None:
    """Run kernels so from now on, after a later init too."""
    builder: Any = interpreter.InterpreterBuilder
    if hasattr(builder, "_pyshmem_scheduled"):
        return
    builder._pyshmem_scheduled = True
    interpreter.GridExecutor.__call__ = _launch(interpreter.GridExecutor.__call__, schedule)
    for name, made in (
        ("create_masked_load", _load), ("create_masked_store", _store),
        ("create_atomic_rmw", _atomic), ("create_atomic_cas", _atomic),
    ):  # fmt: skip
        setattr(builder, name, made(getattr(builder, name)))
    for name, act in _FORMS.items():
        setattr(arch, name, _in_program(getattr(arch, name), act))
    for name, act in (("put_signal", _put_signal), ("put_signal_nbi", _put_signal), ("put_nbi", _nbi)):
        setattr(dev, name, _in_program(getattr(dev, name), act))


def _launch(call: Call, schedule: Schedule) -> Call:
    @wraps(call)
    def scheduled(self: Any, *arguments: Any, **options: Any) -> Any:
        kernel, grid = self.fn, Grid(schedule)
        self.fn = grid.stand_in(kernel)
        _grids.append(grid)
        try:
            return call(self, *arguments, **options)
        finally:
            grid.end()
            _grids.pop()
            self.fn = kernel

    return scheduled


def _running() -> Program | None:
    return _grids[-1].current if _grids else None


def _in_program(call: Call, act: Call) -> Call:
    """act(program, call, *arguments) in a program, the call itself elsewhere."""

    @wraps(call)
    def scheduled(*arguments: Any, **options: Any) -> Any:
        program = _running()
        if program is None:
            return call(*arguments, **options)
        return act(program, wraps(call)(partial(call, **options)) if options else call, *arguments)

    return scheduled


# ---- what comes late ----


def _pe(address: int) -> int:
    """The PE in whose heap it is; -1 for private memory and places on far PEs."""
    heaps = sorted((cpu.base + away, pe) for pe, away in cpu.deltas.items())
    index = bisect_right(heaps, (address, job.n_pes)) - 1
    return heaps[index][1] if index >= 0 and address < heaps[index][0] + cpu.size else -1


def _write(address: int, data: Any) -> Call:
    """Write an array of NumPy's, later."""
    return lambda: _native.copy(address, data.ctypes.data, data.nbytes)


def _copy(program: Program, call: Call, ctx: Any, dest: Any, source: Any, nelems: Any) -> None:
    start, own, nbytes = number(dest), number(source), number(nelems) * item_bytes(dest)
    program.arrive(own, own + nbytes)
    program.arrive(start, start + nbytes)
    if start >> SHIFT or not nbytes:
        program.schedule.before()
        call(ctx, dest, source, nelems)
        return
    data = np.empty(nbytes, np.uint8)
    _native.copy(data.ctypes.data, own, nbytes)
    lazy = program.lazy and _pe(own) >= 0
    apply = partial(_native.copy, start, own, nbytes) if lazy else _write(start, data)
    if program.joined is None:
        program.send(_pe(start), apply)
    else:
        program.joined.append(apply)


def _single(program: Program, call: Call, ctx: Any, pointer: Any, value: Any) -> None:
    start = number(pointer)
    if start >> SHIFT:
        program.schedule.before()
        call(ctx, pointer, value)
        return
    program.arrive(start, start + item_bytes(pointer))
    program.send(_pe(start), _write(start, np.array(array(value))))


def _nbi(program: Program, call: Call, *arguments: Any) -> None:
    program.lazy = True
    try:
        call(*arguments)
    finally:
        program.lazy = False


def _put_signal(program: Program, call: Call, *arguments: Any) -> None:
    """Its signal covers its own data only, and follows them."""
    program.joined = []
    try:
        (_nbi if call.__name__.endswith("_nbi") else _plain)(program, call, *arguments)
    finally:
        program.joined = None


def _plain(program: Program, call: Call, *arguments: Any) -> None:
    call(*arguments)


def _signal(update: str, program: Program, call: Call, ctx: Any, pointer: Any, value: Any) -> None:
    """A release of what the program has stored here and on the signal's PE; that of put_signal releases its data."""
    start, pe, data = number(pointer), _pe(number(pointer)), program.joined
    program.joined = None
    if start >> SHIFT:
        program.schedule.settle()
        call(ctx, pointer, value)
        return
    apply = partial(getattr(_native, f"{update}_uint64"), start, int(number(value)))
    if data is None:
        program.release((pe, job.my_pe))
    if data:
        program.send(pe, data[0], then=apply)
    else:
        program.send(pe, apply)


def _store(call: Call) -> Call:
    @wraps(call)
    def stored(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        program = _running()
        span = _span(ptrs) if program else None
        if program is None or span is None:
            return call(self, ptrs, value, mask, *rest)
        program.arrive(*span)
        program.store(_pe(span[0]), partial(call, self, ptrs, value, mask, *rest), span)
        return None

    return stored


def _span(ptrs: Any) -> tuple[int, int] | None:
    """From the first to the last byte of a block of pointers; None for private memory."""
    places = np.asarray(ptrs.data)
    first = int(places.min())
    if _pe(first) < 0 and _pe(int(places.max())) < 0:
        return None
    return first, int(places.max()) + max(1, ptrs.get_element_ty().primitive_bitwidth // 8)


# ---- what is at once ----


def _load(call: Call) -> Call:
    """A program sees what it has stored itself."""

    @wraps(call)
    def loaded(self: Any, ptrs: Any, *rest: Any) -> Any:
        program = _running()
        if program is not None and (span := _span(ptrs)):
            program.step()
            program.arrive(*span)
        return call(self, ptrs, *rest)

    return loaded


def _atomic(call: Call) -> Call:
    @wraps(call)
    def updated(self: Any, *arguments: Any) -> Any:
        program = _running()
        ptrs = arguments[0] if hasattr(arguments[0], "get_element_ty") else arguments[1]
        if program is not None and (span := _span(ptrs)):
            program.step()
            program.schedule.before()
            program.arrive(*span)
        return call(self, *arguments)

    return updated


def _at_once(program: Program, call: Call, *arguments: Any) -> Any:
    program.step()
    program.schedule.before()
    program.schedule.deliver(lambda effect: effect.ctx == STORES)
    return call(*arguments)


def _fence(program: Program, call: Call, ctx: Any) -> None:
    program.schedule.fence(0, job.my_pe)
    call(ctx)
    program.step()


def _settled(program: Program, call: Call, *arguments: Any) -> Any:
    program.schedule.settle()
    found = call(*arguments)
    program.step()
    return found


def _meeting(program: Program, call: Call, *arguments: Any) -> Any:
    program.schedule.settle()
    program.in_turn()
    return call(*arguments)


def _wait(program: Program, call: Call, *arguments: Any) -> Any:
    """The real wait follows, which returns at once, or says that nothing more comes."""
    program.until(lambda: bool(number(arch.test(*arguments))), job.timeout or inf)
    return call(*arguments)


def _wait_many(test: str, program: Program, call: Call, ctx: Any, routine: Any, *arguments: Any) -> Any:
    """The real wait follows, which returns at once, or looks into the arguments."""
    tests = getattr(arch, test)
    skipped = arguments[-3]  # status
    if test == "test_all" or not isinstance(skipped, type(arguments[0])):
        program.until(lambda: _some_hold(number(tests(ctx, *arguments))), job.timeout or inf)
    return call(ctx, routine, *arguments)


def _some_hold(found: Any) -> bool:
    return bool(found is True or (found is not False and found != 2**64 - 1))


_FORMS: dict[str, Call] = {
    "copy_to": _copy,
    "store_single": _single,
    "set_signal": partial(_signal, "set"),
    "add_signal": partial(_signal, "add"),
    "fence": _fence,
    "wait": _wait,
    "wait_all": partial(_wait_many, "test_all"),
    "wait_any": partial(_wait_many, "test_any"),
    "wait_some": partial(_wait_many, "test_any"),
    **dict.fromkeys(("quiet", "tell_all", "tell_member"), _settled),
    **dict.fromkeys(_AT_ONCE, _at_once),
    **dict.fromkeys(_MEETINGS, _meeting),
}
