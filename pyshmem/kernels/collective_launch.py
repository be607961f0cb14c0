"""A kernel started by all PEs of a team, once all have compiled it. See shmem.launch."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from functools import cache
from typing import Any

from triton.backends import backends
from triton.runtime.jit import KernelInterface

from pyshmem.host.device_context import device_context
from pyshmem.host.ordering import synchronise
from pyshmem.host.teams import Team, member
from pyshmem.runtime import interpreter
from pyshmem.runtime.errors import ArgumentError, LaunchError, refuse
from pyshmem.runtime.gpu.heap import gpu
from pyshmem.runtime.gpu.launch import CachedKernel

_cached = cache(CachedKernel)


def launch(
    kernel: Any, grid: Any, args: tuple[Any, ...], team: Team | None, cooperative: bool, options: dict[str, Any]
) -> int:
    """See shmem.launch."""
    group = member("launch", team)
    context = device_context(group, None)
    counts = _counts(grid)
    values, choices = _bind(kernel, (context, *args), options, group.launches)
    if cooperative:
        _require_together(math.prod(counts))
        choices["launch_cooperative_grid"] = True
    start = _interpreted if interpreter.active() else _compiled
    start(kernel, counts, values, choices, group)
    group.launches += 1
    return group.launches - 1


def _interpreted(kernel: Any, counts: Any, values: Any, choices: dict[str, Any], group: Team) -> None:
    choices.pop("launch_cooperative_grid", None)
    synchronise("launch", group)
    kernel[counts](*values, **choices)


def _compiled(kernel: Any, counts: Any, values: Any, choices: dict[str, Any], group: Team) -> None:
    cached = _cached(kernel)
    try:
        cached.find(*values, **choices)
        synchronise("launch", group)
        cached(counts, *values, **choices)
    except (RuntimeError, AssertionError) as error:
        if "launch_cooperative_grid" not in choices or "ooperative" not in str(error):
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
