"""The rules for arguments, and the texts of errors, which compiled and interpreted kernels share."""

from __future__ import annotations

import math

import triton
import triton.language as tl

from pyshmem.native import _native


@triton.constexpr_function
def wanted_of(tile: object, rows: int) -> str | None:
    """Return the description of a valid tile, or None if ``tile`` is valid. rows: the required rows; 0 for any number."""
    if not isinstance(tile, tl.tensor) or tile.dtype.is_ptr():
        return "numbers in registers"
    if rows and (not tile.type.is_block() or int(tile.shape[0]) != rows):
        return f"{rows} as its first dimension, ctx.members: one entry for each PE, and up to a power of two"
    return None


@triton.constexpr_function
def fault_of(op: object, tile: tl.tensor) -> tuple[str, str] | None:
    """Return (argument, description of valid values) for an invalid operator or dtype, or None if both are valid."""
    if op not in _native.REDUCTIONS:
        return "op", "one of " + ", ".join(_native.REDUCTIONS)
    if tile.dtype.is_int1():
        defined = is_bitwise(op)
    else:
        defined = is_combined(op, tile.dtype) or (tile.dtype.is_fp8() and not is_bitwise(op))
    return None if defined else ("tile", f"a dtype that {op} is defined for")


@triton.constexpr_function
def fault_of_axis(tile: tl.tensor, axis: object, pieces: int) -> tuple[str, str] | None:
    """Return (argument, description of valid values), or None if dimension ``axis`` can be cut into ``pieces``."""
    if not tile.type.is_block():
        return "tile", "a block, for an axis"
    if not isinstance(axis, int) or isinstance(axis, bool) or not 0 <= axis < len(tile.shape):
        return "axis", f"a dimension of the tile, from 0 to {len(tile.shape) - 1}"
    if int(tile.shape[axis]) % pieces:
        return "tile", f"a block whose dimension {axis} is a multiple of {pieces}, ctx.members"
    return None


@triton.constexpr_function
def called(routine: str, argument: str) -> str:
    """Return the name that the routine has for its argument nelems or pe."""
    if argument == "nelems" and routine.endswith("_reduce"):
        return "nreduce"
    return "PE_root" if (routine, argument) == ("broadcast", "pe") else argument


@triton.constexpr_function
def covers(fetch: tl.tensor, pointers: tl.tensor) -> bool:
    """Return whether ``fetch`` has an element for each of the pointers."""
    if not pointers.type.is_block():
        return True
    if not fetch.type.is_block() or len(fetch.shape) != len(pointers.shape):
        return False
    return all(one in (1, place) for one, place in zip(pointers.shape, fetch.shape, strict=True))


@triton.constexpr_function
def is_bitwise(op: str) -> bool:
    """Return whether an operator of atomics or reductions is defined for integers only."""
    tables = (_native.ATOMICS, _native.REDUCTIONS)
    return any(op in table and "float32" not in table[op] for table in tables)


@triton.constexpr_function
def is_combined(op: str, element: tl.dtype) -> bool:
    """Return whether an operator or scan is defined for a dtype."""
    if is_bitwise(op):
        return element.is_int() and element.primitive_bitwidth > 1
    return element.primitive_bitwidth > (8 if element.is_floating() else 1)


@triton.constexpr_function
def count_of(block: tl.tensor) -> int:
    """Return the number of elements of a block."""
    return math.prod(int(extent) for extent in block.shape)


@triton.constexpr_function
def bytes_of(element: tl.dtype) -> int:
    """Return the size of an element."""
    return max(element.primitive_bitwidth // 8, 1)


@triton.constexpr_function
def word_of(element: tl.dtype) -> tl.dtype:
    """Return the signed integer type of the size of an element of 4 or 8 bytes."""
    return {32: tl.int32, 64: tl.int64}[element.primitive_bitwidth]


@triton.constexpr_function
def on_pointers(routine: str) -> str | None:
    """Return what a function of pyshmem.device.transport serves, if it has no form for a team of several nodes."""
    if routine in ("ptr", "load", "store"):
        return routine
    tiles = ("piece_on", "store_piece", "store_rows", "store_words")
    return "a collective on tiles" if routine in tiles else None


@triton.constexpr_function
def wanted_reach(routine: str = "") -> str:
    """Return the description of a valid context, with the call on arrays that reaches other nodes, if there is one."""
    arrays = {
        "all_reduce": "sum_reduce and its kin",
        "reduce_scatter": "sum_reduce and its kin",
        "scan": "sum_inscan or sum_exscan",
        "all_gather": "fcollect",
        "all_to_all": "alltoall",
        "broadcast": "broadcast(ctx, dest, source, nelems, PE_root)",
    }
    messages = dict.fromkeys(("send", "recv", "sendrecv"), "put_signal with signal_wait_until")
    instead = {**arrays, **messages}.get(routine)
    return (
        "a device context of reach DIRECT, of a team of one node as TEAM_SHARED: this call does not reach other nodes"
        + (f"; {instead}, on symmetric arrays, does" if instead else "")
    )


@triton.constexpr_function
def describe(value: object) -> str:
    """Return the description of ``value`` in errors."""
    if not isinstance(value, tl.tensor):
        plain, kind = isinstance(value, (str, bool, int, float, type(None))), type(value).__name__
        return repr(value) if plain else f"{'an' if kind[:1] in 'aeioAEIO' else 'a'} {kind}"
    block = value.type.is_block()
    if value.dtype.is_ptr():
        return f"{'a block of pointers' if block else 'a pointer'} to {value.dtype.element_ty}"
    return f"{'a block' if block else 'a value'} of {value.dtype}"


@triton.constexpr_function
def fault_of_order(sem: object, scope: object) -> tuple[str, object, str] | None:
    """Return (argument, value, description of valid values) for an invalid memory order or scope, or None.

    sem and scope may be None: these are Triton's defaults.
    """
    sems, scopes = ("relaxed", "acquire", "release", "acq_rel"), ("sys", "gpu", "cta")
    if sem is not None and sem not in sems:
        return "sem", sem, "one of " + ", ".join(sems)
    if scope is not None and scope not in scopes:
        return "scope", scope, "one of " + ", ".join(scopes)
    return None


@triton.constexpr_function
def wanted_context(argument: str) -> str:
    return "a device context, which shmem.device_context() returns" + ", as the first argument" * (argument == "ctx")


@triton.constexpr_function
def wanted_partition() -> str:
    return "the partition of a PartitionedTensor, as the first argument"


@triton.constexpr_function
def fault_of_dimension(dim: object, dimensions: int, only: int) -> str | None:
    """Return the description of a valid dimension of a partition, or None if ``dim`` is one. only: negative for several."""
    if dim is None:
        return f"a dimension from 0 to {dimensions - 1}: not one is distributed here" if only < 0 else None
    valid = isinstance(dim, int) and not isinstance(dim, bool) and 0 <= dim < dimensions
    return None if valid else f"a dimension from 0 to {dimensions - 1}"


@triton.constexpr_function
def counts_of(dimensions: int) -> tuple[int, ...]:
    """Return how many indices name an element of a partition. A tensor of one dimension has one column, too."""
    return (1, 2) if dimensions <= 2 else (dimensions,)


@triton.constexpr_function
def names_of(count: int) -> tuple[str, ...]:
    """Return the names of the indices of an element in errors."""
    return ("rows", "cols") if count == 2 else tuple(f"rows[{place}]" for place in range(count))


@triton.constexpr_function
def tile_names_of(count: int) -> tuple[str, ...]:
    """Return the names of the first indices of a tile in errors."""
    return ("row", "col") if count == 2 else tuple(f"row[{place}]" for place in range(count))


@triton.constexpr_function
def wanted_block(dimensions: int) -> str:
    return f"a block of {('one', 'two', 'three', 'four')[dimensions - 1]} dimension{'s' * (dimensions > 1)}"


@triton.constexpr_function
def wanted_combined(op: str, element: tl.dtype) -> str | None:
    """Return the description of valid elements if an operator or scan is not defined for these, or None."""
    if is_combined(op, element):
        return None
    return f"a pointer to {'integers' if is_bitwise(op) else 'integers, or to floats of 2, 4 or 8 bytes'}"


@triton.constexpr_function
def wanted_atomic(op: str, element: tl.dtype) -> str | None:
    """Return the description of a valid element if an atomic is not defined for this one, or None."""
    bitwise = is_bitwise(op)
    if element.primitive_bitwidth in (32, 64) and (element.is_int() or not bitwise):
        return None
    return f"a pointer to {'an integer' if bitwise else 'an integer or float'} of 4 or 8 bytes"


@triton.constexpr_function
def wanted_value(element: tl.dtype) -> str:
    """Return the description of a value that an element can hold."""
    return f"{'an integer' if element.is_int() else 'a number'}, for a pointer to {element}"


@triton.constexpr_function
def comparisons_named() -> str:
    return "CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE"


# ---- events ----


@triton.constexpr_function
def code_of(routine: str) -> int:
    """Return the number of a device function in the events of compiled kernels, above all that timelines give."""
    from zlib import crc32  # here: Triton would compile a function of this module

    return crc32(f"dev.{routine}".encode()) >> 2 | 1 << 30


@triton.constexpr_function
def kind_of(what: str, cmp: int) -> int:
    """Return op and flags of an event, as event_t of pyshmem/native/trace/file.h has them side by side."""
    word, before, on_gpu = 8 << 8, 16 << 8, 4 << 8
    ops = {"set": 1 | word, "add": 2 | word, "meet": 3, "span": 4, "waits": 16 + cmp | word}
    return on_gpu | (ops["waits"] | before if what == "wait" else ops[what])


@triton.constexpr_function
def kind_of_write(op: str, word: tl.tensor) -> int:
    """Return kind_of of a write; 0 if an event cannot name it: of several words, a float, or by another operator."""
    named = not word.type.is_block() and word.dtype.element_ty.is_int() and op in ("set", "add")
    return kind_of(op, 0) if named else 0


@triton.constexpr_function
def upper(half: int) -> int:
    """Return a number as the upper half of 64 bits."""
    return half << 32


@triton.constexpr_function
def size_of(data: tl.tensor) -> int:
    """Return the bytes of an element at a pointer, or of all elements of a tile or at a block of pointers."""
    element = data.dtype.element_ty if data.dtype.is_ptr() else data.dtype
    return bytes_of(element) * (count_of(data) if data.type.is_block() else 1)


@triton.constexpr_function
def text_of(name: str) -> tuple[int, int, int]:
    """Return the name of a span as three numbers of 8 bytes. Errors: ArgumentError for one that is empty or longer."""
    text = name.encode() if isinstance(name, str) else b""
    if not 0 < len(text) <= 24:
        from pyshmem.base.errors import ArgumentError, refuse

        refuse(ArgumentError, "trace_begin", "name", repr(name), "text of 1 to 24 bytes, a constant")
    from struct import unpack

    return unpack("<3q", text.ljust(24, b"\0"))
