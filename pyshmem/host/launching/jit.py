"""shmem.jit: kernels that need no context by hand, and that are launched over a device grid."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, KernelInterface

from pyshmem.base import interpreter
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.device.implicit import MARK, names_context, signature_with_context, with_context
from pyshmem.host.device_context import device_context
from pyshmem.host.launching.grids import Grid
from pyshmem.host.launching.launch import operand, undecorated
from pyshmem.host.teams import Team, member
from pyshmem.kernels.launch import start

Launch = Callable[..., int]  # shmem.launch


def jit(function: Any, launch: Launch, options: dict[str, Any]) -> Any:
    """See shmem.jit."""
    if not hasattr(function, "__code__"):
        refuse(
            ArgumentError, "jit", "function", type(function).__name__, "a function; autotune and heuristics go above"
        )
    kind = _Interpreted if interpreter.active() else _Compiled
    return kind(function, launch, options)


def _decorated(kernel: Any, grid: Any) -> Callable[..., Any]:
    """``kernel[grid]`` of triton.autotune and heuristics around a kernel of shmem.jit: shmem.launch for a device grid.

    Of a plain grid it is Triton's own launch, which would measure configurations on a GPU: where kernels are interpreted,
    the first is taken. Other kernels have Triton's own launch of any grid.
    """
    inner = kernel
    while isinstance(inner, Heuristics | Autotuner):
        inner = inner.fn
    if isinstance(inner, _Kernel):
        if isinstance(grid, Grid):
            return partial(inner.launch, kernel, grid)
        if interpreter.active():
            return partial(_first, kernel, grid)
    plain: Callable[..., Any] = KernelInterface.__getitem__(kernel, grid)
    return plain


Autotuner.__getitem__ = Heuristics.__getitem__ = _decorated


def _first(kernel: Any, grid: Any, *args: Any, **options: Any) -> Any:
    inner, given = undecorated(kernel, args, options, lambda tuner, named, options: tuner.configs[0])
    return inner.run(*args, grid=grid, warmup=False, **given)


class OnTeam:
    """A kernel of shmem.jit with the context of ``team``."""

    def __init__(self, kernel: Any, team: Team | None) -> None:
        self.kernel, self.team = kernel, team

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if isinstance(grid, Grid):
            return partial(self.kernel.launch, self.kernel, grid, team=self.team)
        return partial(self._start, grid)

    def _start(self, grid: Any, *args: Any, **options: Any) -> Any:
        context = (device_context(self.team, None),) if getattr(self.kernel, MARK) else ()
        named = {name: operand(value) for name, value in options.items()}
        return start(self.kernel, grid, (*context, *map(operand, args)), named)


class _Kernel:
    """What compiled and interpreted kernels of shmem.jit have in common."""

    def _prepare(self, function: Callable[..., Any], launch: Launch) -> None:
        self.launch, self._in_world = launch, OnTeam(self, None)
        setattr(self, MARK, not names_context(function))
        if getattr(self, MARK):
            function.__signature__ = signature_with_context(function)  # type: ignore[attr-defined]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self._in_world[grid]

    def on(self, team: Team) -> OnTeam:
        """Return the kernel with the context of ``team``, to be launched as itself. Errors: ArgumentError."""
        return OnTeam(self, member("on", team))


class _Compiled(_Kernel, JITFunction):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], launch: Launch, options: dict[str, Any]) -> None:
        self._prepare(function, launch)
        super().__init__(function, **options)

    def parse(self) -> ast.Module:
        tree: ast.Module = super().parse()
        if getattr(self, MARK):
            tree = with_context(tree, self.fn)
        return tree


class _Interpreted(_Kernel, InterpretedFunction):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], launch: Launch, options: dict[str, Any]) -> None:
        self._prepare(function, launch)
        super().__init__(function, **options)
        if getattr(self, MARK):
            self.rewriter.ast_transformer = _Both(self.rewriter.ast_transformer, function)


class _Both:
    """Adds the context before the interpreter's own changes of a syntax tree."""

    def __init__(self, own: ast.NodeTransformer, function: Callable[..., Any]) -> None:
        self.own, self.function = own, function

    def visit(self, tree: ast.Module) -> Any:
        return self.own.visit(with_context(tree, self.function))
