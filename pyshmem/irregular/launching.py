"""The kernel of a product: compiled once for each kind of operands, and launched from C with all other arguments bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pyshmem.runtime import interpreter
from pyshmem.runtime._native import kernel_key, launch_prepared
from pyshmem.runtime.gpu.launch import CachedKernel, current_stream, refuse_launch, words_of
from pyshmem.runtime.heap import views


def stream_of(device: torch.device) -> int:
    """Return torch's current stream."""
    return int(current_stream(device.index or 0)) if device.type == "cuda" else 0


def kind_of(operands: tuple[Any, ...], *others: int) -> Any:
    """Return an object that is equal for operands for which Triton compiles one kernel, and equal others."""
    return kernel_key(views, others, (False,) * len(operands), operands)


class Bound:
    """``kernel`` on a grid and a stream. Call it with the operands, a NamedTuple, which follow what is fixed."""

    __slots__ = ("_general", "_head", "_held", "_kinds", "_stream")

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], stream: int, fixed: tuple[Any, ...], operands: tuple[Any, ...],
        constants: Mapping[str, Any], **options: Any,
    ) -> None:  # fmt: skip
        """Compile the kernel for operands of the kind of these.

        constants: in the order of the kernel's parameters.  options: those of the compiler, as num_warps.
        """
        self._head = b""
        self._stream = stream
        self._kinds: tuple[Any, ...] = ()
        self._held: tuple[Any, ...] = (fixed, constants)  # the kernel has their addresses, or their code
        if interpreter.active():
            self._general: Any = lambda given: kernel[grid](*fixed, given, **constants)
            return
        loaded = CachedKernel(kernel).find(*fixed, operands, *constants.values(), **options)
        self._general = lambda given: loaded(grid, stream, (*fixed, given, *constants.values()))
        if loaded.plan is not None and not loaded.scratch:
            self._head = loaded.prepared(*grid, words=tuple(_words(fixed, loaded.plan[: len(fixed)])))
            self._kinds = loaded.plan[len(fixed)]

    def __call__(self, operands: tuple[Any, ...]) -> None:
        """Enqueue the kernel. Errors: LaunchError."""
        if not self._head:
            self._general(operands)
            return
        code = launch_prepared(self._head, self._stream, *words_of(operands, self._kinds))
        if code:
            refuse_launch("run", "the kernel of a work", code)


def _words(values: tuple[Any, ...], kinds: tuple[Any, ...]) -> Iterator[int]:
    """As words_of, which would keep tuples of tensors for ever."""
    for value, kind in zip(values, kinds, strict=True):
        yield from _words(value, kind) if isinstance(kind, tuple) else words_of((value,), (kind,))
