"""Kernels of products: compiled once for each kind of operands, and launched from C with all other arguments bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from pyshmem.runtime import interpreter
from pyshmem.runtime._native import kernel_key, launch_prepared
from pyshmem.runtime.gpu.launch import CachedKernel, Loaded, current_stream, refuse_launch, words_of
from pyshmem.runtime.heap import views


def stream_of(device: torch.device) -> int:
    """Return torch's current stream."""
    return int(current_stream(device.index or 0)) if device.type == "cuda" else 0


def kind_of(operands: tuple[Any, ...], *others: int) -> Any:
    """Return an object that is equal for operands for which Triton compiles one kernel, and equal others."""
    return kernel_key(views, others, (False,) * len(operands), operands)


class Launch(NamedTuple):
    """A kernel on a grid. Its parameters are ``fixed``, the operands, and the constants.

    options: those of the compiler, as num_warps. With a constant EARLY that is set, the kernel may begin before the one in
    front of it has ended, and waits for it itself.
    """

    kernel: Any
    grid: tuple[int, ...]
    fixed: tuple[Any, ...]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]

    def compiled(self, operands: tuple[Any, ...]) -> Loaded:
        """Return the kernel for operands of this kind."""
        return CachedKernel(self.kernel).find(*self.fixed, operands, *self.constants.values(), **self.options)

    def plainly(self, stream: int, operands: tuple[Any, ...]) -> None:
        """Enqueue the kernel by Triton."""
        if interpreter.active():
            self.kernel[self.grid](*self.fixed, operands, **self.constants)
        else:
            self.compiled(operands)(self.grid, stream, (*self.fixed, operands, *self.constants.values()))


class Bound:
    """Launches on a stream, one after the other. Call it with their operands, a NamedTuple."""

    __slots__ = ("_heads", "_kinds", "_launches", "_stream")

    def __init__(self, stream: int, launches: Sequence[Launch], operands: tuple[Any, ...]) -> None:
        """Compile the kernels for operands of the kind of these."""
        self._stream = stream
        self._launches = launches  # the kernels hold the addresses of what is fixed
        self._heads: list[bytes] = []
        self._kinds: tuple[Any, ...] = ()
        loaded = [] if interpreter.active() else [each.compiled(operands) for each in launches]
        if loaded and all(each.plan is not None and not each.scratch for each in loaded):
            for launch, found in zip(launches, loaded, strict=True):
                count = len(launch.fixed)
                words = words_of(launch.fixed, found.plan[:count])
                self._heads.append(
                    found.prepared(*launch.grid, words=tuple(words), early=launch.constants.get("EARLY", False))
                )
                self._kinds = found.plan[count]  # alike for all

    def __call__(self, operands: tuple[Any, ...]) -> None:
        """Enqueue the kernels. Errors: LaunchError."""
        if not self._heads:
            for launch in self._launches:
                launch.plainly(self._stream, operands)
            return
        words = words_of(operands, self._kinds)
        for head in self._heads:
            code = launch_prepared(head, self._stream, *words)
            if code:
                refuse_launch("run", "the kernel of a work", code)
