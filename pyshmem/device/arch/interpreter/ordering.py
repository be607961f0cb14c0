"""Completion and ordering of stores in interpreted kernels, where a program is one thread of this process."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.device.arch.interpreter.values import number
from pyshmem.runtime import _native


def join(ctx: Any) -> None:
    """Does nothing, because an interpreted program has a single thread."""


def fence(ctx: Any) -> None:
    _native.fence()


quiet = fence


def set_signal(ctx: Any, pointer: Any, value: Any) -> None:
    """Store a uint64 atomically, after all earlier stores."""
    _native.set_uint64(number(pointer), number(value))


def add_signal(ctx: Any, pointer: Any, value: Any) -> None:
    tl.atomic_add(pointer, value, sem="release", scope="sys")
