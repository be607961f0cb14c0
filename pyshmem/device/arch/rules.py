"""What calls are refused for, where kernels are compiled and where they are interpreted alike."""

from __future__ import annotations

import math

import triton
import triton.language as tl


@triton.constexpr_function
def wanted_of(tile: object, rows: int) -> str | None:
    """What is wanted of a tile that is none, or has another number of rows than these, 0 for any."""
    if not isinstance(tile, tl.tensor) or tile.dtype.is_ptr() or tile.dtype.is_int1():
        return "numbers in registers"
    if rows and (not tile.type.is_block() or int(tile.shape[0]) != rows):
        return f"{rows} as its first dimension, ctx.members: one entry for each PE, and up to a power of two"
    return None


@triton.constexpr_function
def fault_of(op: object, tile: tl.tensor) -> tuple[str, str] | None:
    """(argument, what is wanted) of an operator that there is not, or not for the tile's dtype."""
    operators = ("sum", "prod", "min", "max", "and", "or", "xor")
    if op not in operators:
        return "op", "one of " + ", ".join(operators)
    if not is_combined(op, tile.dtype):
        return "tile", f"a dtype that {op} is defined for"
    return None


@triton.constexpr_function
def called(routine: str, argument: str) -> str:
    """What the routine calls the argument that most call nelems, or pe."""
    if argument == "nelems" and routine.endswith("_reduce"):
        return "nreduce"
    return "PE_root" if (routine, argument) == ("broadcast", "pe") else argument


@triton.constexpr_function
def covers(fetch: tl.tensor, pointers: tl.tensor) -> bool:
    """Whether there is a place in ``fetch`` for each of the pointers."""
    if not pointers.type.is_block():
        return True
    if not fetch.type.is_block() or len(fetch.shape) != len(pointers.shape):
        return False
    return all(one in (1, place) for one, place in zip(pointers.shape, fetch.shape, strict=True))


@triton.constexpr_function
def is_combined(op: str, element: tl.dtype) -> bool:
    """Whether an operator or scan is defined for a dtype."""
    if op in ("and", "or", "xor"):
        return element.is_int() and element.primitive_bitwidth > 1
    return element.primitive_bitwidth > (8 if element.is_floating() else 1)


@triton.constexpr_function
def count_of(block: tl.tensor) -> int:
    """The elements of a block."""
    return math.prod(int(extent) for extent in block.shape)


@triton.constexpr_function
def wanted_reach() -> str:
    return "a device context of reach DIRECT, the one way to peers that this call has"


@triton.constexpr_function
def describe(value: object) -> str:
    """``value`` as errors name it."""
    if not isinstance(value, tl.tensor):
        plain = isinstance(value, (str, bool, int, float, type(None)))
        return repr(value) if plain else f"a {type(value).__name__}"
    block = value.type.is_block()
    if value.dtype.is_ptr():
        return f"{'a block of pointers' if block else 'a pointer'} to {value.dtype.element_ty}"
    return f"{'a block' if block else 'a value'} of {value.dtype}"


@triton.constexpr_function
def fault_of_order(sem: object, scope: object) -> tuple[str, object, str] | None:
    """(argument, what it is, what is wanted) of an order or a scope that atomics do not have. None is Triton's default."""
    sems, scopes = ("relaxed", "acquire", "release", "acq_rel"), ("sys", "gpu", "cta")
    if sem is not None and sem not in sems:
        return "sem", sem, "one of " + ", ".join(sems)
    if scope is not None and scope not in scopes:
        return "scope", scope, "one of " + ", ".join(scopes)
    return None


@triton.constexpr_function
def wanted_context() -> str:
    return "what shmem.device_context() returns, before all else"


@triton.constexpr_function
def wanted_partition() -> str:
    return "the partition of a PartitionedTensor, before all else"


@triton.constexpr_function
def wanted_combined(op: str, element: tl.dtype) -> str | None:
    """What is wanted of an array's elements that an operator or scan is not defined for."""
    if is_combined(op, element):
        return None
    return f"a pointer to {'integers' if op in ('and', 'or', 'xor') else 'integers, or to floats of 2, 4 or 8 bytes'}"


@triton.constexpr_function
def wanted_atomic(op: str, element: tl.dtype) -> str | None:
    """What is wanted of an element that an atomic is not defined for."""
    bitwise = op in ("and", "or", "xor")
    if element.primitive_bitwidth in (32, 64) and (element.is_int() or not bitwise):
        return None
    return f"a pointer to {'an integer' if bitwise else 'an integer or float'} of 4 or 8 bytes"


@triton.constexpr_function
def wanted_value(element: tl.dtype) -> str:
    """What is wanted of a value that an element cannot hold."""
    return f"{'an integer' if element.is_int() else 'a number'}, for a pointer to {element}"


@triton.constexpr_function
def comparisons_named() -> str:
    return "CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE"
