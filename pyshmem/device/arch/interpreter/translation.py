"""Translation of addresses to other PEs in interpreted kernels: by one stride, or by a table if ctx.by_table is set.

The result for a far PE is a place, see pyshmem.base.far.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from pyshmem.base.job import job
from pyshmem.device.arch.interpreter.values import array, decoded, decoded_distance, number


def distance(ctx: Any, pe: Any, mask: Any = None) -> Any:
    """Return the distance in bytes from an address in this PE's heap to the corresponding address on ``pe``."""
    steps = _away(ctx, array(pe))
    kind = tl.block_type(tl.int64, list(steps.shape)) if getattr(pe, "type", None) and pe.type.is_block() else tl.int64
    return tl.tensor(TensorHandle(steps, tl.int64), kind)


def away(ctx: Any, pe: int) -> int:
    """Return the distance to ``pe``."""
    return int(_away(ctx, np.asarray(pe)))


def _away(ctx: Any, pes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not number(ctx.by_table):
        return (pes.astype(np.int64) - decoded(number(ctx.me))) * decoded_distance(number(ctx.stride))
    table = (ctypes.c_int64 * job.n_pes).from_address(number(ctx.table))
    inside = np.clip(pes.astype(np.int64), 0, decoded(number(ctx.n_pes)) - 1)  # a masked lane may name any PE
    return np.frombuffer(table, np.int64)[decoded(number(ctx.start)) + inside * decoded(number(ctx.step))]


def translate(ctx: Any, pointers: Any, pe: Any) -> Any:
    """Return the corresponding pointers on ``pe``. NumPy computes the addresses, ten times as fast as Triton's tensors."""
    places = array(pointers).astype(np.int64) + _away(ctx, array(pe))
    kind = pointers.type
    if isinstance(pe, tl.tensor) and pe.type.is_block():
        kind = tl.block_type(pointers.dtype, list(places.shape))
    return tl.tensor(TensorHandle(places.astype(np.uint64), pointers.dtype), kind)
