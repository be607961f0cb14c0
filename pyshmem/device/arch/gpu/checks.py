"""Checks at compile time: the types of operands. The interpreter also checks run-time values: addresses and PEs."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base.errors import ArgumentError, DtypeError
from pyshmem.device.arch.rules import (
    called,
    comparisons_named,
    covers,
    describe,
    fault_of,
    fault_of_axis,
    fault_of_order,
    on_pointers,
    wanted_atomic,
    wanted_combined,
    wanted_context,
    wanted_of,
    wanted_reach,
    wanted_value,
)
from pyshmem.device.arch.targets import is_direct


@triton.constexpr_function
def refuse_call(kind: type, routine: str, argument: str, value: object, wants: str) -> None:
    """Raise an error that names the kernel, the routine and the argument."""
    import sys  # imported here: Triton compiles no function that uses a Python function of its module

    from pyshmem.base.errors import refuse

    kernel, frame = "?", sys._getframe(1)
    while frame is not None:
        # Triton's code generator: one per function, the outermost is the kernel's
        compiling = frame.f_locals.get("self")
        kernel = compiling.jit_fn.__name__ if hasattr(compiling, "jit_fn") else kernel
        frame = frame.f_back
    refuse(kind, f"kernel {kernel}: {routine}", argument, describe(value), wants)


@triton.constexpr_function
def is_number(value: object) -> bool:
    """Return whether ``value`` is a constant."""
    return not isinstance(value, tl.tensor)


@triton.jit
def check(ctx, routine: tl.constexpr, argument: tl.constexpr, pointers, pe, mask=None):
    """Check a context, pointers and a PE. Errors: ArgumentError."""
    check_context(ctx, routine)
    check_pointers(routine, argument, pointers)
    check_integer(routine, "pe", pe, "an integer")


@triton.jit
def check_atomic(
    ctx, routine: tl.constexpr, op: tl.constexpr, pointers, pe, mask, sem: tl.constexpr, scope: tl.constexpr
):
    """Do what check does, and check the operator, the pointee and the order. Errors: ArgumentError, DtypeError."""
    check(ctx, routine, "pointers", pointers, pe)
    check_operator(routine, op, pointers)
    check_order(routine, sem, scope)


@triton.constexpr_function
def check_order(routine: str, sem: object, scope: object) -> None:
    fault = fault_of_order(sem, scope)
    if fault is not None:
        refuse_call(ArgumentError, routine, fault[0], fault[1], fault[2])


@triton.jit
def check_one(ctx, routine: tl.constexpr, argument: tl.constexpr, pointer, pe, nelems=1):
    """Check one pointer, one PE and one count. Errors: ArgumentError."""
    check_here(ctx, routine, argument, pointer, nelems)
    check_count(routine, called(routine, "pe"), pe)


@triton.jit
def check_here(ctx, routine: tl.constexpr, argument: tl.constexpr, pointer, nelems=1):
    """Check one pointer and one count. Errors: ArgumentError."""
    check_context(ctx, routine)
    check_pointers(routine, argument, pointer)
    check_scalars(routine, argument, pointer, nelems)


@triton.constexpr_function
def check_context(ctx: object, routine: str, argument: str = "ctx") -> None:
    if not isinstance(ctx, tl.tuple):  # Triton 3.6 hides the names of its fields here
        refuse_call(ArgumentError, routine, argument, ctx, wanted_context(argument))


@triton.constexpr_function
def check_reach(routine: str, reach: object) -> None:
    """Errors: ArgumentError if the call has no form for a team of several nodes: calls on pointers and on tiles."""
    call = on_pointers(routine)
    if call and not is_direct(reach):
        refuse_call(ArgumentError, call, "ctx", reach, wanted_reach())


@triton.constexpr_function
def check_pe(ctx: object, routine: str, argument: str, pe: object) -> None:
    """Errors: ArgumentError if ``pe`` is not a scalar integer."""
    check_integer(routine, argument, pe, "an integer")
    if isinstance(pe, tl.tensor) and pe.type.is_block():
        refuse_call(ArgumentError, routine, argument, pe, "one number")


@triton.jit
def check_tile(ctx, routine: tl.constexpr, argument: tl.constexpr, tile, rows: tl.constexpr = 0):
    """Errors: ArgumentError if ``tile`` is not a tile or has a wrong shape, or if the team has PEs on other nodes."""
    check_context(ctx, routine)
    check_near(routine, ctx.reach)
    check_registers(routine, argument, tile, rows)


@triton.constexpr_function
def check_near(routine: str, reach: object) -> None:
    if not is_direct(reach):
        refuse_call(ArgumentError, routine, "ctx", reach, wanted_reach(routine))


@triton.constexpr_function
def check_axis(routine: str, tile: tl.tensor, axis: object, pieces: int) -> None:
    """Errors: ArgumentError if ``axis`` is no dimension of the tile that can be cut into ``pieces``."""
    fault = fault_of_axis(tile, axis, pieces)
    if fault is not None:
        refuse_call(ArgumentError, routine, fault[0], axis if fault[0] == "axis" else tile, fault[1])


@triton.constexpr_function
def check_registers(routine: str, argument: str, tile: object, rows: int) -> None:
    wants = wanted_of(tile, rows)
    if wants is not None:
        refuse_call(ArgumentError, routine, argument, tile, wants)


@triton.constexpr_function
def check_reduced(routine: str, op: object, tile: tl.tensor) -> None:
    """Errors: ArgumentError for an unknown operator, or one that is not defined for the tile's dtype."""
    fault = fault_of(op, tile)
    if fault is not None:
        refuse_call(ArgumentError, routine, fault[0], tile if fault[0] == "tile" else op, fault[1])


@triton.constexpr_function
def fits(ctx: object, routine: str, argument: str, pointer: object, nelems: object) -> bool:
    """Return True: the compiler does not know which memory is allocated."""
    return True


@triton.constexpr_function
def check_combined(routine: str, op: str, dest: tl.tensor) -> None:
    """Errors: DtypeError if the operator or scan is not defined for the elements."""
    wants = wanted_combined(op, dest.dtype.element_ty)
    if wants is not None:
        refuse_call(DtypeError, routine, "dest", dest, wants)


@triton.constexpr_function
def check_alone(ctx: object, routine: str, programs: object) -> None:
    """Check the context. Only the launcher knows whether all programs of a grid run concurrently."""
    check_context(ctx, routine)


@triton.constexpr_function
def check_pointers(routine: str, argument: str, pointers: object) -> None:
    if not isinstance(pointers, tl.tensor) or not pointers.dtype.is_ptr():
        refuse_call(ArgumentError, routine, argument, pointers, "a pointer to symmetric memory")


@triton.constexpr_function
def check_operator(routine: str, op: str, pointers: tl.tensor) -> None:
    wants = wanted_atomic(op, pointers.dtype.element_ty)
    if wants is not None:
        refuse_call(DtypeError, routine, "pointers", pointers, wants)


@triton.constexpr_function
def check_scalars(routine: str, argument: str, pointer: tl.tensor, nelems: object) -> None:
    if pointer.type.is_block():
        refuse_call(ArgumentError, routine, argument, pointer, "one pointer; load, store and atomics take blocks")
    check_count(routine, called(routine, "nelems"), nelems)


@triton.constexpr_function
def check_integer(routine: str, argument: str, value: object, wants: str) -> None:
    integer = value.dtype.is_int() if isinstance(value, tl.tensor) else isinstance(value, int)
    if not integer:
        refuse_call(ArgumentError, routine, argument, value, wants)


@triton.constexpr_function
def check_apart(routine: str, sig_addr: object, dest: object, nelems: object) -> None:
    """Check nothing: the address of the signal is known at run time only."""


@triton.constexpr_function
def check_choice(routine: str, argument: str, value: object, wanted: str) -> None:
    """Errors: ArgumentError if ``value`` is not the constant of one of the names in ``wanted``."""
    if not isinstance(value, int) or value not in range(wanted.count(",") + 1):
        refuse_call(ArgumentError, routine, argument, value, f"one of dev.{wanted}, as a constexpr")


@triton.constexpr_function
def expect(routine: str, argument: str, pointer: object, wanted: tl.dtype) -> None:
    """Errors: DtypeError if ``pointer`` is not one pointer to ``wanted``."""
    one = isinstance(pointer, tl.tensor) and pointer.type.is_ptr()
    if not one or pointer.dtype.element_ty != wanted:
        refuse_call(DtypeError, routine, argument, pointer, f"a pointer to {wanted}")


@triton.constexpr_function
def check_waited(routine: str, argument: str, pointer: object, cmp: object) -> None:
    """Errors: DtypeError for a pointee that waits do not support, ArgumentError for an unknown comparison."""
    if pointer.dtype.element_ty not in (tl.int32, tl.int64, tl.uint32, tl.uint64):
        refuse_call(DtypeError, routine, argument, pointer, "one to int32, int64, uint32 or uint64")
    check_choice(routine, "cmp", cmp, comparisons_named())


@triton.constexpr_function
def check_value(routine: str, argument: str, value: object, pointers: tl.tensor) -> None:
    """Errors: DtypeError for a pointer and for a float to an integer, ArgumentError for a block to one pointer."""
    wanted = pointers.dtype.element_ty
    if isinstance(value, tl.tensor):
        unfit = value.dtype.is_ptr() or (wanted.is_int() and value.dtype.is_floating())
        if value.type.is_block() and not pointers.type.is_block():
            refuse_call(ArgumentError, routine, argument, value, "a scalar, for one pointer")
    else:
        unfit = not isinstance(value, (int, float)) or (wanted.is_int() and isinstance(value, float))
    if unfit:
        refuse_call(DtypeError, routine, argument, value, wanted_value(wanted))


@triton.constexpr_function
def wrap(value: object, wanted: tl.dtype) -> object:
    """Convert a constant to the range of ``wanted``: integers wrap."""
    if not wanted.is_int():
        return float(value)
    bits = wanted.primitive_bitwidth
    value = int(value) % 2**bits if bits > 1 else value != 0
    return value - 2**bits if wanted.is_int_signed() and value >= 2 ** (bits - 1) else value


@triton.constexpr_function
def integer_like(element: tl.dtype) -> tl.dtype:
    """Return an integer type of the same size, for copies. int8 becomes uint8: AMD's compiler loads int8 byte by byte."""
    byte = tl.uint8 if element == tl.int8 else tl.int8
    return {1: tl.int8, 8: byte, 16: tl.int16, 32: tl.int32, 64: tl.int64}[element.primitive_bitwidth]


@triton.jit
def check_blocks(ctx, routine: tl.constexpr, argument: tl.constexpr, pointer, pe, dst, sst, bsize, nblocks):
    """Check the operands of a strided copy. Errors: ArgumentError."""
    check_one(ctx, routine, argument, pointer, pe)
    check_count(routine, "bsize", bsize)
    check_count(routine, block_count(routine), nblocks)
    check_count(routine, "dst", dst)
    check_count(routine, "sst", sst)


@triton.constexpr_function
def check_local(
    routine: str,
    argument: str,
    pointer: object,
    wanted: object,
    nelems: object,
    stride: object = 1,
    nblocks: object = 1,
) -> None:
    """Check the type of the side of a copy that is not symmetric. Errors: DtypeError."""
    expect(routine, argument, pointer, wanted)


@triton.constexpr_function
def block_count(routine: str) -> str:
    """Return the name of a strided routine's argument for the number of blocks."""
    return "nblocks" if routine.startswith("ib") else "nelems"


@triton.constexpr_function
def check_count(routine: str, argument: str, value: object) -> None:
    check_integer(routine, argument, value, "an integer")
    if isinstance(value, tl.tensor) and value.type.is_block():
        refuse_call(ArgumentError, routine, argument, value, "one number")


@triton.jit
def check_many(ctx, routine: tl.constexpr, ivars, nelems, status, cmp: tl.constexpr):
    """Check the operands of a wait or test on an array. Errors: ArgumentError, DtypeError."""
    check_here(ctx, routine, "ivars", ivars, nelems)
    check_waited(routine, "ivars", ivars, cmp)
    if status is not None:
        expect(routine, "status", status, tl.int32)


@triton.jit
def check_pes(ctx, routine: tl.constexpr, target_pes, npes):
    """Check a context, a pointer to int32 and a count. Errors: ArgumentError, DtypeError."""
    check_context(ctx, routine)
    expect(routine, "target_pes", target_pes, tl.int32)
    check_count(routine, "npes", npes)


@triton.constexpr_function
def check_fetch(routine: str, fetch: object, pointers: object) -> None:
    """Errors: DtypeError if ``fetch`` points to another type than ``pointers``, ArgumentError if it has another shape."""
    if isinstance(pointers, tl.tensor) and pointers.dtype.is_ptr():  # else check_atomic refuses them
        wanted = pointers.dtype.element_ty
        pointer = isinstance(fetch, tl.tensor) and fetch.dtype.is_ptr()
        if not pointer or fetch.dtype.element_ty != wanted:
            refuse_call(DtypeError, routine, "fetch", fetch, f"a pointer to {wanted}")
        if not covers(fetch, pointers):
            refuse_call(ArgumentError, routine, "fetch", fetch, "a place for each of the pointers")
