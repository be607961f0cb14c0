"""Checks of calls on partitioned tensors in interpreted kernels, before they access memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from pyshmem.base.errors import ArgumentError, OutOfRangeError
from pyshmem.device.arch.fields import mesh_number
from pyshmem.device.arch.interpreter.checks import check_context, check_members, integers
from pyshmem.device.arch.interpreter.refusing import describe, refuse_call
from pyshmem.device.arch.interpreter.values import array, decoded, number
from pyshmem.device.arch.rules import (
    counts_of,
    fault_of_dimension,
    names_of,
    tile_names_of,
    wanted_block,
    wanted_partition,
)


def check_partition(part: Any, routine: str) -> None:
    if not hasattr(part, "pitch"):
        refuse_call(ArgumentError, routine, "part", describe(part), wanted_partition())
    check_context(part.ctx, routine)


def check_dimension(part: Any, routine: str, dim: Any) -> None:
    """Errors: ArgumentError if ``dim`` is no dimension, or None where not one is distributed."""
    check_partition(part, routine)
    dim = None if dim is None else number(dim)
    fault = fault_of_dimension(dim, len(_shape(part)), int(number(getattr(part, "only", 0))))
    if fault:
        refuse_call(ArgumentError, routine, "dim", describe(dim), fault)


def check_index(part: Any, routine: str, index: Any, mask: Any, dim: Any) -> None:
    """Check an index of a dimension: it must lie in the tensor. Errors: ArgumentError, OutOfRangeError."""
    check_dimension(part, routine, dim)
    extent, _, _ = _cut(part, dim)
    _check_range(routine, "index", _chosen(integers(routine, "index", index), mask), extent, "of the whole tensor")


def check_member(part: Any, routine: str, pe: Any, dim: Any) -> None:
    """Errors: ArgumentError if ``pe`` is no integer; OutOfRangeError if it is no owner of the dimension's indices."""
    check_dimension(part, routine, dim)
    _check_owners(part, routine, integers(routine, "pe", pe), dim)


def check_number(part: Any, routine: str, row: Any, pe: Any, mask: Any, dim: Any) -> None:
    """Check a number of an index of ``pe``: the PE must have it. Errors: ArgumentError, OutOfRangeError."""
    check_dimension(part, routine, dim)
    rows, pes = np.broadcast_arrays(integers(routine, "number", row), integers(routine, "pe", pe))
    rows, pes = _chosen(rows, mask), _chosen(pes, mask)
    _check_owners(part, routine, pes, dim)
    extent, block, members = _cut(part, dim)
    rounds, rest = divmod(extent, block * members)
    most = rounds * block + np.clip(rest - pes * block, 0, block)
    _check_range(routine, "number", rows, most, "of those that pe has")


def _check_owners(part: Any, routine: str, owners: Any, dim: Any) -> None:
    if hasattr(part, "members"):
        _check_range(routine, "pe", owners, _cut(part, dim)[2], "along the axis of the dimension")
    else:
        check_members(part.ctx, routine, owners)


def _chosen(indices: Any, mask: Any) -> Any:
    """Return the lanes that the mask selects; None selects all."""
    if mask is None:
        return indices
    indices, chosen = np.broadcast_arrays(indices, array(mask).astype(bool))
    return indices[chosen]


def _shape(part: Any) -> list[int]:
    """Return the extents of the tensor; a tensor of one dimension has one column."""
    if hasattr(part, "shape"):
        return [mesh_number(int(number(extent))) for extent in part.shape]
    return [int(number(extent)) for extent in (part.rows, part.cols)]


def _cut(part: Any, dim: Any) -> tuple[int, int, int]:
    """Return (extent, block, PEs along the axis) of a dimension; None is the one that is distributed."""
    only = int(number(getattr(part, "only", part.dim)))
    place, shape = only if dim is None else int(number(dim)), _shape(part)
    if hasattr(part, "members"):
        return shape[place], *(mesh_number(int(number(each[place]))) for each in (part.blocks, part.members))
    if place == only:
        return shape[place], int(number(part.block)), decoded(number(part.ctx.n_pes))
    return shape[place], max(shape[place], 1), 1


def _check_range(routine: str, argument: str, indices: Any, most: Any, of: str) -> None:
    indices, bounds = np.broadcast_arrays(indices, most)
    wrong = np.flatnonzero((indices < 0) | (indices >= bounds))
    if wrong.size:
        index, bound = indices.flat[wrong[0]], bounds.flat[wrong[0]]
        refuse_call(OutOfRangeError, routine, argument, str(index), f"one from 0 to {bound - 1} {of}")


def check_places(part: Any, routine: str, at: Any, mask: Any = None) -> None:
    """Check that all unmasked elements lie in the tensor. Errors: ArgumentError, OutOfRangeError."""
    check_partition(part, routine)
    shape = _check_count(part, routine, at)
    names = names_of(len(at))
    lanes = [integers(routine, name, each) for name, each in zip(names, at, strict=True)]
    try:
        *places, chosen = np.broadcast_arrays(*lanes, array(True if mask is None else mask))
    except ValueError:
        shapes = ", ".join(str(each.shape) for each in [*lanes, array(True if mask is None else mask)])
        refuse_call(ArgumentError, routine, names[0], f"shapes {shapes}", "indices and a mask that broadcast")
    for name, indices, extent in zip(names, places, shape, strict=False):
        _check_range(routine, name, indices[chosen.astype(bool)], extent, "of the whole tensor")


def _check_count(part: Any, routine: str, at: Any) -> list[int]:
    """Return the shape of the tensor. Errors: ArgumentError unless there is an index for each dimension."""
    shape = _shape(part)
    if len(at) not in counts_of(len(shape)):
        refuse_call(ArgumentError, routine, "rows", f"{len(at)} indices", f"a tuple of {len(shape)}")
    return shape if len(at) <= len(shape) else [*shape, 1]


def check_tile_place(part: Any, routine: str, at: Any, extents: Any, across: Any) -> None:
    """Check a tile: without ``across``, its part inside the tensor must lie in one block.

    Errors: ArgumentError, OutOfRangeError.
    """
    check_partition(part, routine)
    shape = _check_count(part, routine, at)
    if len(extents) != len(at):
        wants = f"an extent for each of {len(at)} dimensions"
        refuse_call(ArgumentError, routine, "col", f"{len(extents)} extents", wants)
    for dim, (name, first) in enumerate(zip(tile_names_of(len(at)), at, strict=True)):
        if integers(routine, name, first).size != 1 or (isinstance(first, tl.tensor) and first.type.is_block()):
            refuse_call(ArgumentError, routine, name, describe(first), "one number")
        if number(first) < 0:
            refuse_call(OutOfRangeError, routine, name, str(number(first)), "0 or more")
        start, last = number(first), min(number(first) + number(extents[dim]), shape[dim]) - 1
        _, block, _ = _cut(part, dim) if dim < len(_shape(part)) else (1, 1, 1)
        if not across and start <= last and start // block != last // block:
            got = f"a tile of {start} to {last}"
            refuse_call(
                ArgumentError, routine, name, got, f"one inside a block of {block}, which one PE has; or across"
            )


def check_value_of_tile(routine: str, value: Any, at: Any) -> None:
    if not isinstance(value, tl.tensor) or len(value.shape) != len(at):
        refuse_call(ArgumentError, routine, "value", describe(value), wanted_block(len(at)))
