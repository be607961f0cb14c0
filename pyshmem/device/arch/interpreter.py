"""The interpreter's side: a kernel is Python here, so bulk copies, waits and checks are the host's, on real addresses.

In the interpreter a tl.tensor holds a NumPy array; a pointer's entries are addresses. jit leaves the device functions as
they are: the interpreter would patch triton.language anew at each call, which takes a hundred times the call itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import GridExecutor, TensorHandle

from pyshmem.host import _native
from pyshmem.host.errors import (
    ArgumentError,
    DtypeError,
    NotInitializedError,
    NotSymmetricError,
    OutOfRangeError,
    ShmemError,
    WaitTimeoutError,
    refuse,
)
from pyshmem.host.heap import cpu
from pyshmem.host.job import job

_WAITED = {tl.int32: "int32", tl.int64: "int64", tl.uint32: "uint32", tl.uint64: "uint64"}
_SIGNS = ("==", "!=", ">", ">=", "<", "<=")


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """What triton.jit is where kernels are compiled."""
    return function


def number(value: Any) -> Any:
    """The Python number in a scalar tensor, a constexpr, or a number."""
    if isinstance(value, tl.constexpr):
        value = value.value
    return value.handle.data.item() if isinstance(value, tl.tensor) else value


def addresses(pointers: Any) -> np.ndarray[Any, Any]:
    return np.asarray(pointers.handle.data)


def item_bytes(pointers: Any) -> int:
    return max(1, pointers.dtype.element_ty.primitive_bitwidth // 8)


def check(ctx: Any, routine: str, argument: str, pointers: Any, pe: Any, mask: Any = None, count: Any = 1) -> None:
    """Stop a call whose symmetric operand, masked-in lanes only, is not ``count`` live elements a lane, or whose pe is none.

    pe None: an operand of this PE.  Errors: ArgumentError, NotInitializedError, OutOfRangeError, NotSymmetricError.
    """
    if not isinstance(pointers, tl.tensor) or not pointers.dtype.is_ptr():
        _refuse(ArgumentError, routine, argument, f"a {type(pointers).__name__}", "a pointer, or a block of them")
    if number(ctx.generation) != job.generation or not job.inits:
        _refuse(
            NotInitializedError,
            routine,
            "ctx",
            "a device context of before finalize",
            "one from shmem.device_context() since init",
        )
    every = addresses(pointers)
    lanes = every if mask is None else every[np.broadcast_to(_array(mask).astype(bool), every.shape)]
    nbytes = int(number(count)) * item_bytes(pointers)
    if nbytes < 0:
        _refuse(OutOfRangeError, routine, "nelems", str(number(count)), "0 or more")
    if pe is not None:
        _check_pe(ctx, routine, pe, mask, every.shape)
    if nbytes and lanes.size:
        _check_live(routine, argument, lanes.astype(np.int64) - cpu.base, nbytes)


def _check_pe(ctx: Any, routine: str, pe: Any, mask: Any, shape: tuple[int, ...]) -> None:
    members, numbers = int(number(ctx.n_pes)), _array(pe)
    if mask is not None and numbers.size > 1:
        numbers = np.broadcast_to(numbers, shape)[np.broadcast_to(_array(mask).astype(bool), shape)]
    wrong = numbers[(numbers < 0) | (numbers >= members)]
    if wrong.size:
        _refuse(
            OutOfRangeError, routine, "pe", str(wrong.flat[0]), f"a PE from 0 to {members - 1} of the context's team"
        )


def _check_live(routine: str, argument: str, offsets: np.ndarray[Any, Any], nbytes: int) -> None:
    low, high = int(offsets.min()), int(offsets.max())
    if cpu.allocator.covers(low, high - low + nbytes):
        return
    for offset in sorted({int(each) for each in offsets.flat}):
        if not cpu.allocator.covers(offset, nbytes):
            block = cpu.allocator.nearest(offset)
            near = f"the nearest allocation is {block[0]} to {block[1]}" if block else "nothing is allocated"
            _refuse(
                NotSymmetricError,
                routine,
                argument,
                f"{nbytes} bytes at heap offset {offset}",
                f"live symmetric memory of this PE; {near}",
            )


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.handle.data if isinstance(value, tl.tensor) else number(value))


def check_atomic(ctx: Any, routine: str, op: str, pointers: Any, pe: Any, mask: Any) -> None:
    """check, and that ``op`` exists for the pointee: 4 or 8 bytes, integers alone for bitwise ones. Errors: check's, DtypeError."""
    check(ctx, routine, "pointers", pointers, pe, mask)
    element = pointers.dtype.element_ty
    bitwise = op in ("and", "or", "xor")
    if element.primitive_bitwidth not in (32, 64) or (bitwise and not element.is_int()):
        _refuse(
            DtypeError,
            routine,
            "pointers",
            f"pointers to {element}",
            f"to integers{'' if bitwise else ' or floats'} of 4 or 8 bytes",
        )


def expect(routine: str, argument: str, pointers: Any, wanted: Any) -> None:
    """Errors: DtypeError where the pointee is not ``wanted``."""
    pointee = pointers.dtype.element_ty if isinstance(pointers, tl.tensor) and pointers.dtype.is_ptr() else None
    if pointee != wanted:
        _refuse(
            DtypeError,
            routine,
            argument,
            f"a pointer to {pointee}" if pointee else f"a {type(pointers).__name__}",
            f"a pointer to {wanted}",
        )


def fit(routine: str, argument: str, value: Any, pointers: Any) -> Any:
    """``value`` as a tensor of the pointee's type. Errors: DtypeError for float to integer, and for what is no number."""
    wanted = pointers.dtype.element_ty
    tensor = tl.to_tensor(value.value if isinstance(value, tl.constexpr) else value)
    if tensor.dtype.is_ptr() or (wanted.is_int() and tensor.dtype.is_floating()):
        _refuse(
            DtypeError,
            routine,
            argument,
            f"a value of {tensor.dtype}",
            f"{'an integer' if wanted.is_int() else 'a number'}, for a pointer to {wanted}",
        )
    return tensor.to(wanted)


def copy(dest: Any, source: Any, nelems: Any) -> None:
    """nelems elements from source to dest; one aligned word of at most 8 bytes by a single store."""
    _native.copy(int(addresses(dest).item()), int(addresses(source).item()), int(number(nelems)) * item_bytes(dest))


def exchange(pointer: Any, value: Any) -> None:
    """Store a uint64 as an atomic, after everything before it."""
    _native.set_uint64(int(addresses(pointer).item()), int(number(value)))


def fetch(pointer: Any) -> Any:
    """Load a uint64 as an atomic, before everything after it."""
    return _tensor(_native.fetch_uint64(int(addresses(pointer).item())), tl.uint64)


def fence() -> None:
    _native.fence()


def synchronise(ctx: Any, routine: str) -> None:
    """The barrier of ctx's team. Errors: WaitTimeoutError."""
    if number(ctx.generation) != job.generation or not job.inits:
        _refuse(
            NotInitializedError,
            routine,
            "ctx",
            "a device context of before finalize",
            "one from shmem.device_context() since init",
        )
    me, members = (int(number(ctx.me)) - 3) // 2, int(number(ctx.n_pes))
    try:
        _native.sync(int(number(ctx.sync_area)), int(number(ctx.stride)), me, members, job.timeout, job.spins)
    except TimeoutError:
        _refuse_timeout(routine, "ctx", "no word from some PE of its team", "all of them to call it")


def wait(routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> Any:
    """Wait as an acquire until the word compares so; the value seen. Errors: WaitTimeoutError, DtypeError, ArgumentError."""
    name, code, wanted = _compared(routine, argument, pointer, cmp, value)
    address = int(addresses(pointer).item())
    try:
        seen = getattr(_native, f"wait_{name}")(address, code, wanted, job.timeout, job.spins)
    except TimeoutError:
        seen = getattr(_native, f"fetch_{name}")(address)
        _refuse_timeout(
            routine, argument, f"{seen} at heap offset {address - cpu.base}", f"a value {_SIGNS[code]} {wanted}"
        )
    return _tensor(seen, pointer.dtype.element_ty)


def test(routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> Any:
    """Whether the word compares so now, as an acquire. Errors: DtypeError, ArgumentError."""
    name, code, wanted = _compared(routine, argument, pointer, cmp, value)
    return _tensor(getattr(_native, f"test_{name}")(int(addresses(pointer).item()), code, wanted), tl.int1)


def _compared(routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> tuple[str, int, int]:
    name = _WAITED.get(pointer.dtype.element_ty)
    if name is None:
        _refuse(
            DtypeError,
            routine,
            argument,
            f"a pointer to {pointer.dtype.element_ty}",
            "one to int32, int64, uint32 or uint64",
        )
    code = number(cmp)
    if code not in range(6):
        _refuse(ArgumentError, routine, "cmp", repr(code), "one of dev.CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE")
    return name, code, int(number(fit(routine, "value", value, pointer)))


def _tensor(value: Any, dtype: Any) -> Any:
    kind = np.bool_ if dtype is tl.int1 else np.dtype(str(dtype))
    return tl.tensor(TensorHandle(np.array([value], dtype=kind), dtype), dtype)


def _refuse_timeout(routine: str, argument: str, got: str, wants: str) -> NoReturn:
    _refuse(
        WaitTimeoutError,
        routine,
        argument,
        f"{got} in {job.timeout:g} s",
        f"{wants}; PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit",
    )


def _refuse(kind: type[ShmemError], routine: str, argument: str, got: str, wants: str) -> NoReturn:
    """refuse, with the kernel's name before the routine's."""
    frame = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), GridExecutor):
        frame = frame.f_back  # type: ignore[assignment]
    kernel = frame.f_locals["self"].fn.__name__ if frame is not None else "?"
    refuse(kind, f"kernel {kernel}: {routine}", argument, got, wants)
