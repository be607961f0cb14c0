"""What a tile may be refused for, where kernels are compiled and where they are interpreted."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.constexpr_function
def fault_of(tile: object, op: object, rows: int) -> tuple[str, str] | None:
    """(argument, what it wants) or None. op: "" where nothing is combined.  rows: how many a tile must have, 0 for any."""
    operators = ("sum", "prod", "min", "max", "and", "or", "xor")
    if op and op not in operators:
        return "op", "one of " + ", ".join(operators)
    if not isinstance(tile, tl.tensor) or tile.dtype.is_ptr() or tile.dtype.is_int1():
        return "tile", "numbers in registers"
    if op and not is_combined(op, tile.dtype):
        return "tile", f"a dtype that {op} is defined for"
    if rows and (not tile.type.is_block() or int(tile.shape[0]) != rows):
        return "tile", f"{rows} as its first dimension, ctx.members: one entry for each PE, and up to a power of two"
    return None


@triton.constexpr_function
def is_combined(op: str, element: tl.dtype) -> bool:
    """Whether an operator or scan is defined for a dtype."""
    if op in ("and", "or", "xor"):
        return element.is_int() and element.primitive_bitwidth > 1
    return element.primitive_bitwidth > (8 if element.is_floating() else 1)
