"""Kernels of plans: compiled once, with all arguments bound but the arrays of a call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from pyshmem.device.context import DeviceContext
from pyshmem.runtime import interpreter
from pyshmem.runtime._native import kernel_key, launch_prepared
from pyshmem.runtime.gpu.launch import CachedKernel, Loaded, early_launcher, refuse_launch, words_of
from pyshmem.runtime.heap import heaps, views

_loaded: dict[Any, Loaded] = {}


class Prepared:
    """``kernel`` on a grid. Call it with the arrays that follow ``fixed``; constants follow them.

    Any of ``fixed`` may be a NamedTuple, and so may ``arrays``, which then are one parameter of the kernel; a call takes the
    fields. A constant may be a NamedTuple of constants.
    """

    __slots__ = ("_bound", "_fixed", "_head", "_loaded", "_room", "_tail")

    def __init__(
        self, kernel: Any, grid: int | tuple[int, ...], fixed: tuple[Any, ...], arrays: tuple[Any, ...],
        constants: Mapping[str, Any], early: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        """Compile the kernel for arrays like ``arrays``. options: those of the compiler, as num_warps.

        constants: in the order of the kernel's parameters.
        early: the kernel may begin before its predecessor has ended, and waits for it itself.
        """
        arguments = *fixed, *_bundled(type(arrays), arrays)
        _require_constants(kernel, len(arguments), constants)
        self._fixed = fixed  # the kernel holds their addresses
        counts = grid if isinstance(grid, tuple) else (grid,)
        self._tail: tuple[int, ...] = ()
        if interpreter.active():
            bundle = type(arrays)
            self._bound: Any = lambda *given: kernel[counts](*fixed, *_bundled(bundle, given), *constants.values())
            return
        self._bound = None
        self._loaded = _compiled(kernel, arguments, constants, options)
        words = words_of(_flat(fixed), _flat(self._loaded.plan[: len(fixed)]))
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


def _bundled(kind: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call with these arrays: one if ``kind`` is a NamedTuple."""
    return (kind(*given),) if hasattr(kind, "_fields") else given


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """The values, with those of tuples in the place of each."""
    for each in values:
        if isinstance(each, tuple):
            yield from _flat(each)
        else:
            yield each


def _compiled(
    kernel: Any, arguments: tuple[Any, ...], constants: Mapping[str, Any], options: Mapping[str, Any]
) -> Loaded:
    """Return the kernel for arguments of this kind. What it is found by holds no tensor, whose memory it would keep."""
    given = [each for one in arguments for each in ([one] if isinstance(one, DeviceContext) else _flat([one]))]
    flags = (False,) * len(given) + (True,) * len(constants)
    asked = kernel, torch.cuda.current_device(), *options.items()
    key = kernel_key(views, asked, flags, (*given, *constants.values()))
    found = _loaded.get(key)
    if found is None:
        found = _loaded[key] = CachedKernel(kernel).find(*arguments, *constants.values(), **options)
    return found


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
