"""Translation of addresses to other PEs in interpreted kernels. The CPU heaps of a node have a constant stride."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from pyshmem.device.arch.interpreter.values import array, decoded, decoded_distance, number


def distance(ctx: Any, pe: Any, mask: Any = None) -> Any:
    """Return the distance in bytes from an address in this PE's heap to the corresponding address on ``pe``."""
    steps = array(pe).astype(np.int64) - decoded(number(ctx.me))
    kind = tl.block_type(tl.int64, list(steps.shape)) if getattr(pe, "type", None) and pe.type.is_block() else tl.int64
    return tl.tensor(TensorHandle(steps * decoded_distance(number(ctx.stride)), tl.int64), kind)


def translate(ctx: Any, pointers: Any, pe: Any) -> Any:
    """Return the corresponding pointers on ``pe``. NumPy computes the addresses, ten times as fast as Triton's tensors."""
    steps = array(pe).astype(np.int64) - decoded(number(ctx.me))
    places = array(pointers).astype(np.int64) + steps * decoded_distance(number(ctx.stride))
    kind = pointers.type
    if isinstance(pe, tl.tensor) and pe.type.is_block():
        kind = tl.block_type(pointers.dtype, list(places.shape))
    return tl.tensor(TensorHandle(places.astype(np.uint64), pointers.dtype), kind)
