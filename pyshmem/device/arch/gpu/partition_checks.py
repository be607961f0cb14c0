"""Checks of calls on partitioned tensors at compile time: the types of operands."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base.errors import ArgumentError
from pyshmem.device.arch.gpu.checks import check_integer, refuse_call
from pyshmem.device.arch.rules import (
    counts_of,
    fault_of_dimension,
    names_of,
    tile_names_of,
    wanted_block,
    wanted_partition,
)


@triton.constexpr_function
def check_partition(part: object, routine: str) -> None:
    if not isinstance(part, tl.tuple) or len(part.values) not in (7, 13):  # 3.6 hides the fields' names here
        refuse_call(ArgumentError, routine, "part", part, wanted_partition())


@triton.constexpr_function
def check_dimension(part: object, routine: str, dim: object) -> None:
    check_partition(part, routine)
    fault = fault_of_dimension(dim, dimensions_of(part), only_of(part))
    if fault:
        refuse_call(ArgumentError, routine, "dim", dim, fault)


@triton.constexpr_function
def check_index(part: object, routine: str, index: object, mask: object, dim: object) -> None:
    check_dimension(part, routine, dim)
    check_integer(routine, "index", index, "an integer")


@triton.constexpr_function
def check_member(part: object, routine: str, pe: object, dim: object) -> None:
    check_dimension(part, routine, dim)
    check_integer(routine, "pe", pe, "an integer")


@triton.constexpr_function
def check_number(part: object, routine: str, row: object, pe: object, mask: object, dim: object) -> None:
    check_member(part, routine, pe, dim)
    check_integer(routine, "number", row, "an integer")


@triton.constexpr_function
def check_places(part: object, routine: str, at: tl.tuple, mask: object = None) -> None:
    check_partition(part, routine)
    check_count(part, routine, at)
    for name, value in zip(names_of(len(at.values)), at.values, strict=True):
        check_integer(routine, name, value, "an integer")


@triton.constexpr_function
def check_count(part: object, routine: str, at: tl.tuple) -> None:
    """Whether there is one entry for each dimension; a tensor of one dimension has one column too."""
    if len(at.values) not in counts_of(dimensions_of(part)):
        refuse_call(ArgumentError, routine, "rows", f"{len(at.values)} indices", f"a tuple of {dimensions_of(part)}")


@triton.constexpr_function
def check_tile_place(part: object, routine: str, at: tl.tuple, extents: object, across: bool) -> None:
    check_partition(part, routine)
    check_count(part, routine, at)
    for name, value in zip(tile_names_of(len(at.values)), at.values, strict=True):
        check_integer(routine, name, value, "an integer")
        if isinstance(value, tl.tensor) and value.type.is_block():
            refuse_call(ArgumentError, routine, name, value, "one number")
    if len(extents) != len(at.values):
        wants = f"an extent for each of {len(at.values)} dimensions"
        refuse_call(ArgumentError, routine, "col", f"{len(extents)} extents", wants)


@triton.constexpr_function
def check_value_of_tile(routine: str, value: object, at: tl.tuple) -> None:
    if not isinstance(value, tl.tensor) or len(value.shape) != len(at.values):
        refuse_call(ArgumentError, routine, "value", value, wanted_block(len(at.values)))


@triton.constexpr_function
def dimensions_of(part: tl.tuple) -> int:
    """Return how many indices an element has: of a Partition two, of a MeshPartition as many as its shape has extents."""
    return 2 if len(part.values) == 7 else len(part.values[8].values)


@triton.constexpr_function
def only_of(part: tl.tuple) -> int:
    """Return the dimension that is distributed, negative if there are several."""
    return 0 if len(part.values) == 7 else int(getattr(part.values[6], "value", part.values[6]))
