"""Checks of calls in interpreted kernels, before they access memory: addresses, PEs, element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl

from pyshmem.base.errors import (
    ArgumentError,
    DtypeError,
    NotInitializedError,
    NotSymmetricError,
    OutOfRangeError,
    ShmemError,
)
from pyshmem.base.job import job
from pyshmem.device.arch.fields import decoded, encoded
from pyshmem.device.arch.interpreter.refusing import describe, refuse_call
from pyshmem.device.arch.interpreter.values import array, item_bytes, memory, number
from pyshmem.device.arch.rules import (
    called,
    comparisons_named,
    covers,
    fault_of,
    fault_of_axis,
    fault_of_order,
    on_pointers,
    wanted_atomic,
    wanted_combined,
    wanted_context,
    wanted_of,
    wanted_reach,
)
from pyshmem.device.arch.targets import is_direct
from pyshmem.memory.cpu_heap import cpu

OTHER_NODES = "the context of a team with PEs on other nodes"
_WAITED = {tl.int32: "int32", tl.int64: "int64", tl.uint32: "uint32", tl.uint64: "uint64"}


def check(ctx: Any, routine: str, argument: str, pointers: Any, pe: Any, mask: Any = None) -> np.ndarray[Any, Any]:
    """Check a tile call: unmasked elements must be live symmetric memory, and their PEs must be in the team.

    Returns the addresses of the unmasked elements.
    Errors: ArgumentError, NotInitializedError, OutOfRangeError, NotSymmetricError.
    """
    check_context(ctx, routine)
    _check_pointers(routine, argument, pointers)
    lanes = [array(pointers), integers(routine, "pe", pe), *([] if mask is None else [array(mask).astype(bool)])]
    try:
        places, pes, *chosen = np.broadcast_arrays(*lanes)
    except ValueError:
        shapes = ", ".join(str(each.shape) for each in lanes)
        refuse_call(ArgumentError, routine, argument, f"shapes {shapes}", "pe and mask that broadcast against pointers")
    if chosen:
        places, pes = places[chosen[0]], pes[chosen[0]]
    check_members(ctx, routine, pes)
    _check_live(routine, argument, places, item_bytes(pointers))
    return np.asarray(places)


def check_atomic(ctx: Any, routine: str, op: str, pointers: Any, pe: Any, mask: Any, sem: Any, scope: Any) -> None:
    """Check an atomic as check does, and that ``op`` is defined for the elements, which must be aligned.

    Errors: those of check; DtypeError.
    """
    places = check(ctx, routine, "pointers", pointers, pe, mask)
    _check_aligned(routine, "pointers", places, item_bytes(pointers))
    wants = wanted_atomic(op, pointers.dtype.element_ty)
    if wants is not None:
        refuse_call(DtypeError, routine, "pointers", describe(pointers), wants)
    fault = fault_of_order(sem, scope)
    if fault is not None:
        refuse_call(ArgumentError, routine, fault[0], describe(fault[1]), fault[2])


def check_one(ctx: Any, routine: str, argument: str, pointer: Any, pe: Any, nelems: Any = None) -> None:
    """Check a call on ``nelems`` elements at one pointer: they must be live, and pe in the team. Errors: those of check.

    nelems: None is one word, which must be aligned.
    """
    count = _check_counted(ctx, routine, argument, pointer, nelems)
    check_pe(ctx, routine, called(routine, "pe"), pe)
    if count:
        _check_live(routine, argument, array(pointer), count * item_bytes(pointer))


def check_here(ctx: Any, routine: str, argument: str, pointer: Any, nelems: Any = None) -> None:
    """Check a call without a PE on ``nelems`` elements at one pointer, as check_one. Errors: those of check."""
    count = _check_counted(ctx, routine, argument, pointer, nelems)
    if count:
        _check_live(routine, argument, array(pointer), count * item_bytes(pointer))


def _check_counted(ctx: Any, routine: str, argument: str, pointer: Any, nelems: Any) -> int:
    check_context(ctx, routine)
    _check_pointers(routine, argument, pointer)
    _check_scalar(routine, argument, pointer, "one pointer; load, store and atomics take blocks")
    if nelems is not None:
        return _count(routine, called(routine, "nelems"), nelems, 0)
    _check_aligned(routine, argument, array(pointer), item_bytes(pointer))
    return 1


def fits(ctx: Any, routine: str, argument: str, pointer: Any, nelems: Any) -> bool:
    """Return whether check_here accepts the arguments."""
    try:
        check_here(ctx, routine, argument, pointer, nelems)
    except ShmemError:
        return False
    return True


def check_reach(routine: str, reach: Any) -> None:
    """Errors: ArgumentError if the call has no form for a team of several nodes: calls on pointers and on tiles."""
    call = on_pointers(routine)
    if call and not is_direct(number(reach)):
        refuse_call(ArgumentError, call, "ctx", OTHER_NODES, wanted_reach())


def check_pe(ctx: Any, routine: str, argument: str, pe: Any) -> None:
    """Errors: ArgumentError if ``pe`` is no scalar integer; OutOfRangeError if it is no PE of ctx's team."""
    pes = integers(routine, argument, pe)
    _check_scalar(routine, argument, pe, "one PE")
    check_members(ctx, routine, pes, argument)


def check_tile(ctx: Any, routine: str, argument: str, tile: Any, rows: Any = 0) -> None:
    """Errors: ArgumentError if ``tile`` is no tile or has a wrong shape, or if the team has PEs on other nodes."""
    check_context(ctx, routine)
    if not is_direct(number(ctx.reach)):
        refuse_call(ArgumentError, routine, "ctx", OTHER_NODES, wanted_reach(routine))
    wants = wanted_of(tile, number(rows))
    if wants is not None:
        refuse_call(ArgumentError, routine, argument, describe(tile), wants)


def check_axis(routine: str, tile: Any, axis: Any, pieces: Any) -> None:
    """Errors: ArgumentError if ``axis`` is no dimension of the tile that can be cut into ``pieces``."""
    axis = axis.value if isinstance(axis, tl.constexpr) else axis
    fault = fault_of_axis(tile, axis, number(pieces))
    if fault is not None:
        refuse_call(ArgumentError, routine, fault[0], repr(axis) if fault[0] == "axis" else describe(tile), fault[1])


def check_reduced(routine: str, op: Any, tile: Any) -> None:
    """Errors: ArgumentError if ``op`` is no operator or is not defined for the tile's dtype."""
    op = op.value if isinstance(op, tl.constexpr) else op
    fault = fault_of(op, tile)
    if fault is not None:
        refuse_call(ArgumentError, routine, fault[0], describe(tile) if fault[0] == "tile" else repr(op), fault[1])


def check_combined(routine: str, op: str, dest: Any) -> None:
    """Errors: DtypeError if the operator or scan is not defined for the elements."""
    wants = wanted_combined(op, dest.dtype.element_ty)
    if wants is not None:
        refuse_call(DtypeError, routine, "dest", describe(dest), wants)


def check_alone(ctx: Any, routine: str, programs: Any) -> None:
    """Errors: ArgumentError if the grid has several programs, because the interpreter runs one after the other."""
    check_context(ctx, routine)
    if number(programs) > 1:
        wants = "1 in the interpreter, which runs the programs of a grid one after the other"
        refuse_call(ArgumentError, routine, "grid", f"{number(programs)} programs", wants)


def check_context(ctx: Any, routine: str, argument: str = "ctx") -> None:
    generation = getattr(ctx, "generation", None)
    if generation is None:
        refuse_call(ArgumentError, routine, argument, describe(ctx), wanted_context(argument))
    if number(generation) != encoded(job.generation) or not job.inits:
        got = "a device context of before finalize"
        refuse_call(NotInitializedError, routine, argument, got, "one from shmem.device_context() since init")


def check_apart(routine: str, sig_addr: Any, dest: Any, nelems: Any) -> None:
    """Errors: ArgumentError for a signal inside dest[:nelems]."""
    distance = number(sig_addr) - number(dest)
    if 0 <= distance < number(nelems) * item_bytes(dest):
        refuse_call(ArgumentError, routine, "sig_addr", "an element of dest", "a word outside what is copied")


def check_choice(routine: str, argument: str, value: Any, wanted: str) -> int:
    """The constant, as the number of a name in ``wanted``. Errors: ArgumentError."""
    code = number(value)
    if code not in range(wanted.count(",") + 1):
        refuse_call(ArgumentError, routine, argument, repr(code), f"one of dev.{wanted}")
    return int(code)


def check_blocks(
    ctx: Any, routine: str, argument: str, pointer: Any, pe: Any, dst: Any, sst: Any, bsize: Any, nblocks: Any
) -> None:
    """Check a strided copy as check_one does, from its first element to its last. Errors: those of check."""
    check_context(ctx, routine)
    blocks = "nblocks" if routine.startswith("ib") else "nelems"
    size, count = _count(routine, "bsize", bsize, 0), _count(routine, blocks, nblocks, 0)
    strides = {"dest": _count(routine, "dst", dst, max(size, 1)), "source": _count(routine, "sst", sst, 1)}
    check_one(ctx, routine, argument, pointer, pe, (count - 1) * strides[argument] + size if size and count else 0)


def check_local(
    routine: str, argument: str, pointer: Any, wanted: Any, nelems: Any, stride: Any = 1, nblocks: Any = 1
) -> None:
    """Check the side of a copy that is not symmetric: nblocks blocks of nelems elements at one pointer to ``wanted``.

    They must be live if they begin in the heap; private memory is not checked. The numbers have been checked.
    Errors: DtypeError, NotSymmetricError.
    """
    expect(routine, argument, pointer, wanted)
    size, blocks = number(nelems), number(nblocks)
    if size and blocks and 0 <= number(pointer) - cpu.base < cpu.size:
        _check_live(routine, argument, array(pointer), ((blocks - 1) * number(stride) + size) * item_bytes(pointer))


def check_many(ctx: Any, routine: str, ivars: Any, nelems: Any, status: Any, cmp: Any) -> None:
    """Check a wait or test: the words must be live and of a valid type. Errors: those of check; DtypeError."""
    check_here(ctx, routine, "ivars", ivars, nelems)
    _check_aligned(routine, "ivars", array(ivars)[: number(nelems)], item_bytes(ivars))
    check_waited(routine, "ivars", ivars, cmp)
    if status is not None:
        expect(routine, "status", status, tl.int32)


def check_waited(routine: str, argument: str, pointer: Any, cmp: Any) -> tuple[str, int]:
    """Return the name of the element type and the number of the comparison. Errors: DtypeError, ArgumentError."""
    name = _WAITED.get(pointer.dtype.element_ty)
    if name is None:
        refuse_call(DtypeError, routine, argument, describe(pointer), "one to int32, int64, uint32 or uint64")
    return name, check_choice(routine, "cmp", cmp, comparisons_named())


def check_pes(ctx: Any, routine: str, target_pes: Any, npes: Any) -> None:
    """Check a list of PEs: all must be in the team. Errors: those of check; DtypeError."""
    check_context(ctx, routine)
    expect(routine, "target_pes", target_pes, tl.int32)
    check_members(ctx, routine, memory(target_pes, _count(routine, "npes", npes, 0)), "target_pes")


def check_fetch(routine: str, fetch: Any, pointers: Any) -> None:
    """Errors: DtypeError if ``fetch`` and ``pointers`` have different element types; ArgumentError for a wrong shape."""
    if isinstance(pointers, tl.tensor) and pointers.dtype.is_ptr():  # otherwise check_atomic refuses them
        wanted = pointers.dtype.element_ty
        pointer = isinstance(fetch, tl.tensor) and fetch.dtype.is_ptr()
        if not pointer or fetch.dtype.element_ty != wanted:
            refuse_call(DtypeError, routine, "fetch", describe(fetch), f"a pointer to {wanted}")
        if not covers(fetch, pointers):
            refuse_call(ArgumentError, routine, "fetch", describe(fetch), "a place for each of the pointers")


def expect(routine: str, argument: str, pointer: Any, wanted: Any) -> None:
    """Errors: DtypeError if ``pointer`` is not a single pointer to ``wanted``."""
    one = isinstance(pointer, tl.tensor) and pointer.type.is_ptr()
    if not one or pointer.dtype.element_ty != wanted:
        refuse_call(DtypeError, routine, argument, describe(pointer), f"a pointer to {wanted}")


def _check_pointers(routine: str, argument: str, pointers: Any) -> None:
    if not isinstance(pointers, tl.tensor) or not pointers.dtype.is_ptr():
        host = isinstance(pointers, torch.Tensor)  # the kernel was called as a function
        wants = "a pointer to symmetric memory" + ", in a kernel that is started as kernel[grid](...)" * host
        refuse_call(ArgumentError, routine, argument, describe(pointers), wants)


def _check_scalar(routine: str, argument: str, value: Any, wants: str) -> None:
    if isinstance(value, tl.tensor) and value.type.is_block():
        refuse_call(ArgumentError, routine, argument, describe(value), wants)


def _count(routine: str, argument: str, value: Any, least: int) -> int:
    """Return the number. Errors: ArgumentError if it is no integer; OutOfRangeError if it is below ``least``."""
    count = int(integers(routine, argument, value)[0])
    _check_scalar(routine, argument, value, "one number")
    if count < least:
        refuse_call(OutOfRangeError, routine, argument, str(count), f"{least} or more")
    return count


def integers(routine: str, argument: str, value: Any) -> np.ndarray[Any, Any]:
    entries = array(value)
    if entries.dtype.kind not in "iub" or (isinstance(value, tl.tensor) and value.dtype.is_ptr()):
        refuse_call(ArgumentError, routine, argument, describe(value), "an integer")
    return entries


def check_members(ctx: Any, routine: str, pes: np.ndarray[Any, Any], argument: str = "pe") -> None:
    members = decoded(number(ctx.n_pes))
    wrong = pes[(pes < 0) | (pes >= members)]
    if wrong.size:
        wants = f"a PE from 0 to {members - 1} of the context's team"
        refuse_call(OutOfRangeError, routine, argument, str(wrong.flat[0]), wants)


def _check_aligned(routine: str, argument: str, places: np.ndarray[Any, Any], nbytes: int) -> None:
    least = min(nbytes, 8)
    wrong = places[places % least != 0]
    if wrong.size:
        got, wants = f"the address {int(wrong.flat[0]):#x}", f"a multiple of {least}, the size of the word"
        refuse_call(ArgumentError, routine, argument, got, wants)


def _check_live(routine: str, argument: str, places: np.ndarray[Any, Any], nbytes: int) -> None:
    if not places.size:
        return
    low, high = int(places.min()) - cpu.base, int(places.max()) - cpu.base
    if cpu.allocator.covers(low, high - low + nbytes):
        return
    for offset in sorted({int(place) - cpu.base for place in places.flat}):
        if not cpu.allocator.covers(offset, nbytes):
            block = cpu.allocator.nearest(offset)
            near = f"the nearest allocation is {cpu.extent(block)}" if block else "nothing is allocated"
            where = (
                f"bytes at heap offset {offset}" if 0 <= offset < cpu.size else "bytes at an address in private memory"
            )
            wants = f"live symmetric memory of this PE; {near}"
            refuse_call(NotSymmetricError, routine, argument, f"{nbytes} {where}", wants)
