"""Completion and ordering of stores in interpreted kernels, where a program is one thread of this process."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.device.arch.interpreter import far
from pyshmem.device.arch.interpreter.values import number
from pyshmem.device.arch.targets import is_direct
from pyshmem.runtime import _native


def join(ctx: Any) -> None:
    """Does nothing, because an interpreted program has a single thread."""


def fence(ctx: Any) -> None:
    """Order stores. Requests to one PE are always ordered."""
    _native.fence()


def quiet(ctx: Any) -> None:
    _native.fence()
    if not is_direct(number(ctx.reach)):
        _native.far_quiet()


def set_signal(ctx: Any, pointer: Any, value: Any) -> None:
    """Store a uint64 atomically, after all earlier stores."""
    if far.is_far(pointer):
        far.atomic("swap", pointer, None, value)
    else:
        _native.set_uint64(number(pointer), number(value))


def add_signal(ctx: Any, pointer: Any, value: Any) -> None:
    if far.is_far(pointer):
        far.atomic("add", pointer, None, value)
    else:
        tl.atomic_add(pointer, value, sem="release", scope="sys")
