"""Signals of interpreted kernels: put_signal is a copy (copies.py), then a signal from here."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.device.arch.interpreter import far
from pyshmem.device.arch.interpreter.values import number
from pyshmem.native import _native


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
