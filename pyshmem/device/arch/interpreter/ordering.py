"""Completion and ordering of stores in interpreted kernels, where a program is one thread of this process."""

from __future__ import annotations

from typing import Any

from pyshmem.device.arch.interpreter.values import number
from pyshmem.device.arch.targets import is_direct
from pyshmem.native import _native


def join(ctx: Any) -> None:
    """Does nothing, because an interpreted program has a single thread."""


def fence(ctx: Any) -> None:
    """Order stores. Requests to one PE are always ordered, but not with what a fabric carries."""
    _native.fence()
    if not is_direct(number(ctx.reach)):
        _native.far_fence()


def quiet(ctx: Any) -> None:
    _native.fence()
    if not is_direct(number(ctx.reach)):
        _native.far_quiet()
