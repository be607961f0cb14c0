"""The interpreter's side: a kernel is Python here, so bulk copies and waits are the host's, on real addresses.

jit leaves the device functions as they are: the interpreter would patch triton.language anew at each call, which takes a
hundred times the call itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, _get_np_dtype, interpreter_semantic

from pyshmem.device.arch.operators import operate
from pyshmem.device.arch.refusals import (
    array,
    check_context,
    check_waited,
    describe,
    item_bytes,
    number,
    refuse_call,
)
from pyshmem.runtime import _native, timeouts
from pyshmem.runtime.cpu_heap import cpu
from pyshmem.runtime.errors import ArgumentError, DtypeError, WaitTimeoutError
from pyshmem.runtime.job import job


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """What triton.jit is where kernels are compiled."""
    return function


def translate(ctx: Any, pointers: Any, pe: Any) -> Any:
    """The pointers' places on ``pe``: the heaps of a node lie at one stride. Addresses, not tensors: ten times as fast."""
    steps = array(pe).astype(np.int64) - (number(ctx.me) - 3) // 2
    places = array(pointers).astype(np.int64) + steps * number(ctx.stride)
    kind = pointers.type
    if isinstance(pe, tl.tensor) and pe.type.is_block():
        kind = tl.block_type(pointers.dtype, list(places.shape))
    return tl.tensor(TensorHandle(places.astype(np.uint64), pointers.dtype), kind)


def atomic(ctx: Any, op: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    """Triton's atomic of that operator. Its mask is a tensor, or None."""
    lanes = mask if mask is None else interpreter_semantic.to_tensor(mask)
    if op in ("min", "max") and value.dtype.is_floating():
        return _order_floats(op, pointers, value, lanes, sem, scope)
    return operate(op, pointers, value, lanes, sem, scope)


def compare_swap(ctx: Any, pointers: Any, expected: Any, wanted: Any, sem: Any, scope: Any) -> Any:
    return tl.atomic_cas(pointers, expected, wanted, sem=sem, scope=scope)


def _order_floats(op: str, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    """min and max by the bits: as signed integers, or backwards as unsigned ones where the value has a sign.

    So does Triton for GPUs; its interpreter does too, but gives the bits of what was there as a number.
    """
    signed, unsigned = (tl.int32, tl.uint32) if value.dtype.primitive_bitwidth == 32 else (tl.int64, tl.uint64)
    bits = value.to(signed, bitcast=True)
    below = bits < 0
    lanes = below == below if mask is None else mask
    back = {"min": "max", "max": "min"}[op]
    up = operate(op, pointers.to(tl.pointer_type(signed), bitcast=True), bits, lanes & ~below, sem, scope)
    backwards = pointers.to(tl.pointer_type(unsigned), bitcast=True)
    down = operate(back, backwards, bits.to(unsigned, bitcast=True), lanes & below, sem, scope)
    return tl.where(below, down.to(signed, bitcast=True), up).to(value.dtype, bitcast=True)


def fit(routine: str, argument: str, value: Any, pointers: Any) -> Any:
    """``value`` as a tensor of the pointee's type: integers wrap, floats round.

    Errors: DtypeError for float to integer and for a pointer, ArgumentError for a block where there is one pointer.
    """
    wanted = pointers.dtype.element_ty
    value = value.value if isinstance(value, tl.constexpr) else value
    exact = isinstance(value, float) and wanted.is_floating()  # to_tensor would round it to float32
    tensor = tensor_of(value, tl.float64) if exact else interpreter_semantic.to_tensor(value)
    if tensor.dtype.is_ptr() or (wanted.is_int() and tensor.dtype.is_floating()):
        kind = "an integer" if wanted.is_int() else "a number"
        refuse_call(DtypeError, routine, argument, describe(tensor), f"{kind}, for a pointer to {wanted}")
    if tensor.type.is_block() and not pointers.type.is_block():
        refuse_call(ArgumentError, routine, argument, describe(tensor), "a scalar, for one pointer")
    if tensor.dtype != wanted and (wanted.is_bf16() or wanted.is_fp8()):
        tensor = tensor.to(tl.float32)  # from other types the interpreter would make the number its bits
    return rounded(tensor, wanted)


def in_registers(value: Any) -> Any:
    """A Python number as a scalar; all else as it is."""
    plain = value.value if isinstance(value, tl.constexpr) else value
    return interpreter_semantic.to_tensor(plain) if isinstance(plain, (bool, int, float)) else value


def rounded(value: Any, element: Any) -> Any:
    """Floats as others, to the nearest: the interpreter's own conversion to bfloat16 cuts bits off."""
    if not (element.is_bf16() and value.dtype.is_fp32()):
        return value.to(element)
    nearest = torch.from_numpy(np.ascontiguousarray(array(value))).to(torch.bfloat16)
    return tl.tensor(TensorHandle(nearest.view(torch.uint16).numpy(), element), value.type.with_element_ty(element))


def copy(ctx: Any, dest: Any, source: Any, nelems: Any) -> None:
    """nelems elements from source to dest; one aligned word of at most 8 bytes by a single store."""
    _native.copy(number(dest), number(source), number(nelems) * item_bytes(dest))


def arange(count: Any, each: Any = 1) -> Any:
    """0 ... count - 1."""
    return tl.arange(0, count)


def apart(count: Any) -> Any:
    """0 ... 4 * count - 1."""
    return tl.arange(0, 4 * count)


def threads(ctx: Any) -> int:
    """How many elements a block has of each that a thread holds: enough to make few blocks."""
    return 256


def join(ctx: Any) -> None:
    """A program is one thread here: it waits for no other."""


def set_signal(ctx: Any, pointer: Any, value: Any) -> None:
    """Store a uint64 as an atomic, after everything before it."""
    _native.set_uint64(number(pointer), number(value))


def add_signal(ctx: Any, pointer: Any, value: Any) -> None:
    tl.atomic_add(pointer, value, sem="release", scope="sys")


def read(ctx: Any, pointer: Any) -> Any:
    """One element as it is in memory now."""
    return tl.load(pointer)


def fetch(ctx: Any, pointer: Any) -> Any:
    """Load a uint64 as an atomic, before everything after it."""
    return tensor_of(_native.fetch_uint64(number(pointer)), tl.uint64)


def fence(ctx: Any) -> None:
    _native.fence()


quiet = fence


def store_single(ctx: Any, pointer: Any, value: Any) -> None:
    tl.store(pointer, value)


def synchronise(ctx: Any, routine: str) -> None:
    """The barrier of ctx's team, after all that this PE has stored. Errors: WaitTimeoutError."""
    check_context(ctx, routine)
    _native.fence()
    me, members = (number(ctx.me) - 3) // 2, number(ctx.n_pes)
    try:
        _native.sync((number(ctx.sync_area), number(ctx.stride), me, members), job.timeout, job.spins)
    except TimeoutError:
        _refuse_timeout(routine, "ctx", "no word from some PE of its team", "all of them to call it")


def wait(ctx: Any, routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> Any:
    """Wait as an acquire until the word compares so; the value seen. Errors: WaitTimeoutError, DtypeError, ArgumentError."""
    name, code, wanted = _compared(routine, argument, pointer, cmp, value)
    address = number(pointer)
    try:
        seen = getattr(_native, f"wait_{name}")(address, code, wanted, job.timeout, job.spins)
    except TimeoutError:
        seen = getattr(_native, f"fetch_{name}")(address)
        _refuse_timeout(
            routine, argument, f"{seen} at heap offset {address - cpu.base}", f"a value {timeouts.SIGNS[code]} {wanted}"
        )
    return tensor_of(seen, pointer.dtype.element_ty)


def test(ctx: Any, routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> Any:
    """Whether the word compares so now, as an acquire. Errors: DtypeError, ArgumentError."""
    name, code, wanted = _compared(routine, argument, pointer, cmp, value)
    return tensor_of(getattr(_native, f"test_{name}")(number(pointer), code, wanted), tl.int1)


def _compared(routine: str, argument: str, pointer: Any, cmp: Any, value: Any) -> tuple[str, int, int]:
    return *check_waited(routine, argument, pointer, cmp), number(fit(routine, "value", value, pointer))


def tensor_of(value: Any, dtype: Any) -> Any:
    """A number as a tensor."""
    return tl.tensor(TensorHandle(np.array([value], dtype=_get_np_dtype(dtype)), dtype), dtype)


def _refuse_timeout(routine: str, argument: str, got: str, wants: str) -> NoReturn:
    refuse_call(
        WaitTimeoutError,
        routine,
        argument,
        f"{got} in {job.timeout:g} s",
        f"{wants}; PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit",
    )
