"""Kernels of plans: compiled once, with all arguments bound but the arrays of a call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from pyshmem.runtime import interpreter
from pyshmem.runtime._native import launch_prepared
from pyshmem.runtime.gpu.launch import CachedKernel, early_launcher, refuse_launch, words_of
from pyshmem.runtime.heap import heaps

_cached = cache(CachedKernel)


class Prepared:
    """``kernel`` on a grid. Call it with the arrays that follow ``fixed``; constants follow them."""

    __slots__ = ("_bound", "_fixed", "_head", "_loaded", "_room", "_tail")

    def __init__(
        self, kernel: Any, grid: int | tuple[int, ...], fixed: tuple[Any, ...], arrays: tuple[Any, ...],
        constants: Mapping[str, Any], early: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        """Compile the kernel for arrays like ``arrays``. options: those of the compiler, as num_warps.

        constants: in the order of the kernel's parameters.
        early: the kernel may begin before its predecessor has ended, and waits for it itself.
        """
        _require_constants(kernel, len(fixed) + len(arrays), constants)
        self._fixed = fixed  # the kernel holds their addresses
        counts = grid if isinstance(grid, tuple) else (grid,)
        self._tail: tuple[int, ...] = ()
        if interpreter.active():
            self._bound: Any = lambda *given: kernel[counts](*fixed, *given, *constants.values())
            return
        self._bound = None
        self._loaded = _cached(kernel).find(*fixed, *arrays, *constants.values(), **options)
        words = words_of(fixed, self._loaded.plan[: len(fixed)])
        self._head = self._loaded.prepared(*counts, words=tuple(words), early=early)
        self._room = None
        if self._loaded.scratch:
            self._room = torch.empty(math.prod(counts) * self._loaded.scratch, dtype=torch.uint8, device="cuda")
            self._tail = (self._room.data_ptr(),)

    def __call__(self, *arrays: torch.Tensor) -> None:
        """Enqueue the kernel on torch's current stream. Errors: LaunchError."""
        if self._bound is not None:
            self._bound(*arrays)
            return
        stream = heaps["cuda"].direct.use_stream()
        code = launch_prepared(self._head, stream, *[array.data_ptr() for array in arrays], *self._tail)
        if code:
            refuse_launch("ops", "a plan's kernel", code)


def may_be_early() -> bool:
    """Return whether a kernel may begin before its predecessor has ended, and wait for it itself."""
    return not interpreter.active() and bool(early_launcher())


def _require_constants(kernel: Any, bound: int, constants: Mapping[str, Any]) -> None:
    """Refuse what the interpreter takes and a launch leaves out. None is a constant of any kernel. Errors: TypeError."""
    notes = inspect.get_annotations(kernel.fn)
    wanted = kernel.arg_names[bound : bound + len(constants)]
    if list(constants) != wanted or not all(
        constants[name] is None or "constexpr" in str(notes.get(name)) for name in wanted
    ):
        raise TypeError(
            f"{kernel.__name__}: constants {list(constants)} in place of {wanted}, which must be tl.constexpr"
        )
