"""Copies in interpreted kernels, by the host's functions."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.device.arch.interpreter.values import item_bytes, number
from pyshmem.runtime import _native


def copy(ctx: Any, dest: Any, source: Any, nelems: Any) -> None:
    """Copy nelems elements from source to dest. A single aligned word of at most 8 bytes is copied by one store."""
    _native.copy(number(dest), number(source), number(nelems) * item_bytes(dest))


def copy_blocks(ctx: Any, dest: Any, source: Any, dst: Any, sst: Any, bsize: Any, nblocks: Any) -> None:
    """Copy nblocks blocks of bsize elements from source to dest, with strides of sst and dst elements."""
    steps = (number(each) * item_bytes(dest) for each in (dst, sst, bsize))
    _native.copy_strided(number(dest), number(source), *steps, number(nblocks))


def read(ctx: Any, pointer: Any) -> Any:
    """Load one element from memory."""
    return tl.load(pointer)


def store_single(ctx: Any, pointer: Any, value: Any) -> None:
    tl.store(pointer, value)
