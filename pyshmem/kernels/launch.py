"""Kernels of the program that all PEs of a team start together: their arguments, options and compilation."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from triton.backends import backends
from triton.runtime.jit import KernelInterface

from pyshmem.runtime import interpreter
from pyshmem.runtime.errors import ArgumentError, LaunchError, refuse
from pyshmem.runtime.gpu.heap import gpu
from pyshmem.runtime.gpu.launch import CachedKernel

_cached = cache(CachedKernel)


def prepare(
    kernel: Any, grid: Any, values: tuple[Any, ...], cooperative: bool, options: dict[str, Any], epoch: int
) -> Callable[[], None]:
    """Compile ``kernel`` for these arguments; the function that is returned starts it. Arguments and errors: shmem.launch's.

    values: the kernel's first arguments, the device context among them.  epoch: of a parameter with this name.
    """
    counts = _counts(grid)
    bound, choices = _bind(kernel, values, options, epoch)
    if cooperative:
        _require_together(math.prod(counts))
    if interpreter.active():
        return partial(kernel[counts], *bound, **choices)
    if not cooperative:
        _cached(kernel).find(*bound, **choices)
        return partial(_cached(kernel), counts, *bound, **choices)
    choices["launch_cooperative_grid"] = True
    _cooperatively(counts, _cached(kernel).find, *bound, **choices)
    return partial(_cooperatively, counts, _cached(kernel), counts, *bound, **choices)


def _cooperatively(counts: tuple[int, ...], step: Callable[..., Any], *args: Any, **options: Any) -> None:
    try:
        step(*args, **options)
    except (RuntimeError, AssertionError) as error:
        if "ooperative" not in str(error):
            raise
        wants = "a GPU that starts grids cooperatively, and a grid that it holds at once"
        refuse(LaunchError, "launch", "grid", f"{math.prod(counts)} programs: {error}", wants)


def _counts(grid: Any) -> tuple[int, ...]:
    counts = grid if isinstance(grid, tuple) else (grid,)
    if not 1 <= len(counts) <= 3 or any(type(each) is not int or each < 1 for each in counts):
        refuse(ArgumentError, "launch", "grid", repr(grid), "one to three ints, each 1 or more")
    return counts


def _bind(
    kernel: Any, values: tuple[Any, ...], options: dict[str, Any], epoch: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A value for every parameter, in their order, and what is left of the options: the compiler's."""
    if not isinstance(kernel, KernelInterface) or not inspect.isfunction(getattr(kernel, "fn", None)):
        refuse(ArgumentError, "launch", "kernel", type(kernel).__name__, "a function of triton.jit")
    signature = inspect.signature(kernel.fn)
    own = {name: value for name, value in options.items() if name in signature.parameters}
    try:
        if "epoch" in signature.parameters and "epoch" not in signature.bind_partial(*values, **own).arguments:
            own["epoch"] = epoch
        bound = signature.bind(*values, **own)
    except TypeError as error:
        refuse(ArgumentError, "launch", "args", str(error), f"those of {kernel.fn.__name__}, after its context")
    bound.apply_defaults()
    choices = {name: value for name, value in options.items() if name not in own}
    for name in choices.keys() - _compilers_options():
        wants = f"a parameter of {kernel.fn.__name__}, or an option of Triton's compiler"
        refuse(ArgumentError, "launch", "options", repr(name), wants)
    return bound.args, choices


@cache
def _compilers_options() -> frozenset[str]:
    """Of every compiler that this Triton has: the interpreter takes any name and says nothing."""
    modules = [sys.modules[backend.compiler.__module__] for backend in backends.values()]
    kinds = [each for module in modules for each in vars(module).values() if dataclasses.is_dataclass(each)]
    return frozenset(field.name for kind in kinds for field in dataclasses.fields(kind))


def _require_together(programs: int) -> None:
    """Errors: LaunchError where the programs of the grids cannot all run at once."""
    if interpreter.active():
        if programs > 1:
            wants = "1 in the interpreter, which runs the programs of a grid one after the other"
            refuse(LaunchError, "launch", "grid", f"{programs} programs", wants)
    elif gpu.shared:
        refuse(LaunchError, "launch", "cooperative", "a GPU that several PEs share", "a GPU for each PE")
