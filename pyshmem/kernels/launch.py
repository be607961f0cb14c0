"""Compilation and launch of the kernels that all PEs of a team start together by shmem.launch."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn

from triton import knobs
from triton.backends import backends
from triton.runtime.jit import KernelInterface

from pyshmem.base import interpreter
from pyshmem.base.errors import ArgumentError, LaunchError, refuse
from pyshmem.kernels.compiled import CachedKernel
from pyshmem.memory.gpu.heap import gpu

_cached = cache(CachedKernel)


def prepare(
    kernel: Any,
    grid: Any,
    own: Callable[[tuple[int, ...]], tuple[int, ...]] | None,
    values: tuple[Any, ...],
    cooperative: bool,
    options: dict[str, Any],
    epoch: int,
) -> Callable[[], None]:
    """Compile ``kernel``, and return a function that starts it. Arguments and errors are those of shmem.launch.

    own: gives the programs of this PE of those of the grid, along each axis; None means all of them.
    values: the first arguments of the kernel, including the device context.  epoch: the value of a parameter of this name.
    """
    counts = () if callable(grid) else _counts(grid)
    bound, choices = _bind(kernel, values, options, epoch)
    counts = counts or _counts(grid(dict(zip(kernel.arg_names, bound, strict=True))))
    counts = own(counts) if own else counts
    if not all(counts):  # drivers refuse empty grids
        return _nothing
    if cooperative:
        _require_together(math.prod(counts))
    if interpreter.active():
        return partial(kernel.run, *bound, grid=counts, warmup=False, **choices)
    if not cooperative:
        cached = _cached(kernel)
        cached.compile(*bound, **choices)
        return partial(cached, counts, *bound, **choices)
    choices["launch_cooperative_grid"] = True
    _cooperatively(counts, _cached(kernel).find, *bound, **choices)
    return partial(_cooperatively, counts, _cached(kernel), counts, *bound, **choices)


def start(kernel: Any, grid: Any, values: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Start ``kernel`` on this PE alone, as Triton's own launch does, in less of the host's time, above all for tuples.

    Hooks of profilers get Triton's own.
    """
    if interpreter.active() or knobs.runtime.launch_enter_hook.calls:
        return kernel.run(*values, grid=grid, warmup=False, **options)
    bound, choices = _bind(kernel, values, options, None)
    counts = grid(dict(zip(kernel.arg_names, bound, strict=True))) if callable(grid) else grid
    if all(counts):  # drivers refuse empty grids
        _cached(kernel)(tuple(map(int, counts)), *bound, **choices)
    return None


def _nothing() -> None:
    """The start of a kernel on a PE that has no program."""


def _cooperatively(counts: tuple[int, ...], step: Callable[..., Any], *args: Any, **options: Any) -> None:
    try:
        step(*args, **options)
    except (RuntimeError, AssertionError) as error:
        if "ooperative" not in str(error):
            raise
        wants = "a GPU that supports cooperative launches, and a grid whose programs can all run at once"
        refuse(LaunchError, "launch", "grid", f"{math.prod(counts)} programs: {error}", wants)


def _counts(grid: Any) -> tuple[int, ...]:
    counts = grid if isinstance(grid, tuple) else (grid,)
    if not 1 <= len(counts) <= 3 or any(type(each) is not int or each < 1 for each in counts):
        refuse(ArgumentError, "launch", "grid", repr(grid), "one to three ints, each 1 or more")
    return counts


class _Parameters(NamedTuple):
    """The names of a kernel's parameters in their order, and the values of those that have one."""

    names: tuple[str, ...]
    defaults: dict[str, Any]


@cache
def _parameters(kernel: Any) -> _Parameters:
    """The parameters of a kernel, with the context that shmem.jit adds."""
    parameters = inspect.signature(kernel.fn).parameters
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    return _Parameters(tuple(parameters), defaults)


def _bind(
    kernel: Any, values: tuple[Any, ...], options: dict[str, Any], epoch: int | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the values of all parameters in order, and the other options, which are those of the compiler.

    epoch: the value of a parameter of this name that has none.
    """
    if not isinstance(kernel, KernelInterface) or not inspect.isfunction(getattr(kernel, "fn", None)):
        refuse(ArgumentError, "launch", "kernel", type(kernel).__name__, "a function of triton.jit")
    names, defaults = _parameters(kernel)
    given = dict(zip(names, values, strict=False))
    own = {name: value for name, value in options.items() if name in names}
    if epoch is not None and "epoch" in names and "epoch" not in given and "epoch" not in own:
        own["epoch"] = epoch
    found = {**defaults, **given, **own}
    if len(found) < len(names) or len(values) > len(names) or not given.keys().isdisjoint(own):
        _refuse_arguments(kernel, values, own)
    choices = {name: value for name, value in options.items() if name not in own}
    for name in choices.keys() - _compilers_options():
        wants = f"a parameter of {kernel.fn.__name__}, or an option of Triton's compiler"
        refuse(ArgumentError, "launch", "options", repr(name), wants)
    return tuple([found[name] for name in names]), choices


def _refuse_arguments(kernel: Any, values: tuple[Any, ...], own: dict[str, Any]) -> NoReturn:
    """Errors: ArgumentError, in the words of Python's own calls."""
    try:
        inspect.signature(kernel.fn).bind(*values, **own)
    except TypeError as error:
        refuse(ArgumentError, "launch", "args", str(error), f"the arguments of {kernel.fn.__name__} after the context")
    raise AssertionError(f"{kernel.fn.__name__} takes these arguments")


@cache
def _compilers_options() -> frozenset[str]:
    """Return the options of all compilers of this Triton. They are checked here, as the interpreter accepts any name."""
    modules = [sys.modules[backend.compiler.__module__] for backend in backends.values()]
    kinds = [each for module in modules for each in vars(module).values() if dataclasses.is_dataclass(each)]
    return frozenset(field.name for kind in kinds for field in dataclasses.fields(kind))


def _require_together(programs: int) -> None:
    """Errors: LaunchError if the programs of the grids cannot all run at once."""
    if interpreter.active():
        if programs > 1:
            wants = "1 in the interpreter, which runs the programs of a grid one after the other"
            refuse(LaunchError, "launch", "grid", f"{programs} programs", wants)
    elif gpu.shared and not gpu.in_turn:
        wants = "a GPU for each PE, or an NVIDIA GPU without MPS, on which PEs take turns"
        refuse(LaunchError, "launch", "cooperative", "a GPU that several PEs share", wants)
