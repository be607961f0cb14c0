"""What the interpreter stops of calls on partitioned tensors before anything is read or written."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from pyshmem.device.arch.interpreter.checks import check_context, integers
from pyshmem.device.arch.interpreter.refusing import describe, refuse_call
from pyshmem.device.arch.interpreter.values import array, number
from pyshmem.runtime.errors import ArgumentError, OutOfRangeError


def check_partition(part: Any, routine: str) -> None:
    if not hasattr(part, "pitch"):
        refuse_call(
            ArgumentError, routine, "part", describe(part), "the partition of a PartitionedTensor, before all else"
        )
    check_context(part.ctx, routine)


def check_places(part: Any, routine: str, rows: Any, cols: Any, mask: Any = None) -> None:
    """Stop a call with a masked-in element outside of the tensor. Errors: ArgumentError, OutOfRangeError."""
    check_partition(part, routine)
    lanes = [integers(routine, "rows", rows), integers(routine, "cols", cols), array(True if mask is None else mask)]
    try:
        *places, chosen = np.broadcast_arrays(*lanes)
    except ValueError:
        shapes = ", ".join(str(each.shape) for each in lanes)
        refuse_call(ArgumentError, routine, "rows", f"shapes {shapes}", "rows, cols and mask that broadcast")
    for name, indices, extent in zip(("rows", "cols"), places, (part.rows, part.cols), strict=True):
        indices, most = indices[chosen.astype(bool)], number(extent)
        wrong = indices[(indices < 0) | (indices >= most)]
        if wrong.size:
            refuse_call(OutOfRangeError, routine, name, str(wrong[0]), f"one from 0 to {most - 1} of the whole tensor")


def check_tile_place(part: Any, routine: str, row: Any, col: Any, BM: int, BN: int) -> None:
    """Stop a tile of which the tensor's part lies in more than one block. Errors: ArgumentError, OutOfRangeError."""
    check_partition(part, routine)
    for name, first in (("row", row), ("col", col)):
        if integers(routine, name, first).size != 1 or (isinstance(first, tl.tensor) and first.type.is_block()):
            refuse_call(ArgumentError, routine, name, describe(first), "one number")
        if number(first) < 0:
            refuse_call(OutOfRangeError, routine, name, str(number(first)), "0 or more")
    name, first, count, extent = ("col", col, BN, part.cols) if number(part.dim) else ("row", row, BM, part.rows)
    start, block = number(first), number(part.block)
    last = min(start + number(count), number(extent)) - 1
    if start <= last and start // block != last // block:
        got = f"a tile of {start} to {last}"
        refuse_call(ArgumentError, routine, name, got, f"one inside a block of {block}, which one PE has; or *_at")


def check_plane(routine: str, value: Any) -> None:
    if not isinstance(value, tl.tensor) or len(value.shape) != 2:
        refuse_call(ArgumentError, routine, "value", describe(value), "a block of two dimensions")
