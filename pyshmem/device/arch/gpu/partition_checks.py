"""Checks of calls on partitioned tensors at compile time: the types of operands."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu.checks import check_integer, refuse_call
from pyshmem.device.arch.rules import wanted_partition
from pyshmem.runtime.errors import ArgumentError


@triton.constexpr_function
def check_partition(part: object, routine: str) -> None:
    if not isinstance(part, tl.tuple) or len(part.values) != 7:  # Triton 3.6 hides the names of the fields here
        refuse_call(ArgumentError, routine, "part", part, wanted_partition())


@triton.constexpr_function
def check_index(part: object, routine: str, index: object, mask: object) -> None:
    check_partition(part, routine)
    check_integer(routine, "index", index, "an integer")


@triton.constexpr_function
def check_member(part: object, routine: str, pe: object) -> None:
    check_partition(part, routine)
    check_integer(routine, "pe", pe, "an integer")


@triton.constexpr_function
def check_number(part: object, routine: str, row: object, pe: object, mask: object) -> None:
    check_member(part, routine, pe)
    check_integer(routine, "number", row, "an integer")


@triton.constexpr_function
def check_places(part: object, routine: str, rows: object, cols: object, mask: object = None) -> None:
    check_partition(part, routine)
    check_integer(routine, "rows", rows, "an integer")
    check_integer(routine, "cols", cols, "an integer")


@triton.constexpr_function
def check_tile_place(part: object, routine: str, row: object, col: object, BM: int, BN: int) -> None:
    check_partition(part, routine)
    for name, value in (("row", row), ("col", col)):
        check_integer(routine, name, value, "an integer")
        if isinstance(value, tl.tensor) and value.type.is_block():
            refuse_call(ArgumentError, routine, name, value, "one number")


@triton.constexpr_function
def check_plane(routine: str, value: object) -> None:
    if not isinstance(value, tl.tensor) or len(value.shape) != 2:
        refuse_call(ArgumentError, routine, "value", value, "a block of two dimensions")
