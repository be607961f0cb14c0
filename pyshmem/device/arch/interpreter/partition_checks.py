"""Checks of calls on partitioned tensors in interpreted kernels, before they access memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from pyshmem.device.arch.interpreter.checks import check_context, check_members, integers
from pyshmem.device.arch.interpreter.refusing import describe, refuse_call
from pyshmem.device.arch.interpreter.values import array, decoded, number
from pyshmem.device.arch.rules import wanted_partition
from pyshmem.runtime.errors import ArgumentError, OutOfRangeError


def check_partition(part: Any, routine: str) -> None:
    if not hasattr(part, "pitch"):
        refuse_call(ArgumentError, routine, "part", describe(part), wanted_partition())
    check_context(part.ctx, routine)


def check_index(part: Any, routine: str, index: Any, mask: Any) -> None:
    """Check an index of the partitioned dimension: it must lie in the tensor. Errors: ArgumentError, OutOfRangeError."""
    check_partition(part, routine)
    _check_range(
        routine, "index", _chosen(integers(routine, "index", index), mask), _extent(part), "of the whole tensor"
    )


def check_member(part: Any, routine: str, pe: Any) -> None:
    """Errors: ArgumentError if ``pe`` is no integer; OutOfRangeError if it is no PE of the partition's team."""
    check_partition(part, routine)
    check_members(part.ctx, routine, integers(routine, "pe", pe))


def check_number(part: Any, routine: str, row: Any, pe: Any, mask: Any) -> None:
    """Check a row or column of ``pe``: the PE must have it. Errors: ArgumentError, OutOfRangeError."""
    check_partition(part, routine)
    rows, pes = np.broadcast_arrays(integers(routine, "number", row), integers(routine, "pe", pe))
    rows, pes = _chosen(rows, mask), _chosen(pes, mask)
    check_members(part.ctx, routine, pes)
    block, members = number(part.block), decoded(number(part.ctx.n_pes))
    rounds, rest = divmod(_extent(part), block * members)
    most = rounds * block + np.clip(rest - pes * block, 0, block)
    _check_range(routine, "number", rows, most, "of those that pe has")


def _chosen(indices: Any, mask: Any) -> Any:
    """Return the lanes that the mask selects; None selects all."""
    if mask is None:
        return indices
    indices, chosen = np.broadcast_arrays(indices, array(mask).astype(bool))
    return indices[chosen]


def _extent(part: Any) -> int:
    """Return the extent of the partitioned dimension."""
    return int(number(part.cols if number(part.dim) else part.rows))


def _check_range(routine: str, argument: str, indices: Any, most: Any, of: str) -> None:
    indices, bounds = np.broadcast_arrays(indices, most)
    wrong = np.flatnonzero((indices < 0) | (indices >= bounds))
    if wrong.size:
        index, bound = indices.flat[wrong[0]], bounds.flat[wrong[0]]
        refuse_call(OutOfRangeError, routine, argument, str(index), f"one from 0 to {bound - 1} {of}")


def check_places(part: Any, routine: str, rows: Any, cols: Any, mask: Any = None) -> None:
    """Check that all unmasked elements lie in the tensor. Errors: ArgumentError, OutOfRangeError."""
    check_partition(part, routine)
    lanes = [integers(routine, "rows", rows), integers(routine, "cols", cols), array(True if mask is None else mask)]
    try:
        *places, chosen = np.broadcast_arrays(*lanes)
    except ValueError:
        shapes = ", ".join(str(each.shape) for each in lanes)
        refuse_call(ArgumentError, routine, "rows", f"shapes {shapes}", "rows, cols and mask that broadcast")
    for name, indices, extent in zip(("rows", "cols"), places, (part.rows, part.cols), strict=True):
        _check_range(routine, name, indices[chosen.astype(bool)], number(extent), "of the whole tensor")


def check_tile_place(part: Any, routine: str, row: Any, col: Any, BM: int, BN: int) -> None:
    """Check a tile: its part inside the tensor must lie in one block. Errors: ArgumentError, OutOfRangeError."""
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
