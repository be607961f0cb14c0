"""Values in interpreted kernels. A tl.tensor contains a NumPy array, with one entry if the tensor is a scalar.

The entries of a pointer are addresses. ``jit`` returns device functions unchanged: otherwise the interpreter would patch
triton.language at each call, which takes a hundred times as long as the call.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as _triton
from triton.runtime.interpreter import TensorHandle, _get_np_dtype, interpreter_semantic

from pyshmem.base.errors import ArgumentError, DtypeError
from pyshmem.device.arch.fields import decoded as decoded
from pyshmem.device.arch.fields import decoded_distance as decoded_distance
from pyshmem.device.arch.interpreter.refusing import describe, refuse_call
from pyshmem.device.arch.rules import wanted_value

if sys.version_info < (3, 11):
    # Triton imports it for the first tuple that a kernel takes, and print, which then stands for tl.static_print, has no
    # signature there
    import triton.experimental.gluon  # noqa: F401


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged. Compiled device functions use triton.jit instead."""
    return function


def array(value: Any) -> np.ndarray[Any, Any]:
    """Return the entries of a tensor, a constexpr or a number."""
    if isinstance(value, tl.tensor):
        return np.asarray(value.handle.data)
    return np.asarray([value.value if isinstance(value, tl.constexpr) else value])


def number(value: Any) -> Any:
    """Return the Python number in a scalar."""
    return array(value).item()


def memory(pointer: Any, count: int) -> np.ndarray[Any, Any]:
    """Return an array that views the ``count`` elements at a pointer."""
    dtype = np.dtype(_get_np_dtype(pointer.dtype.element_ty))
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(number(pointer)), dtype)


def item_bytes(pointers: Any) -> int:
    return int(pointers.dtype.element_ty.primitive_bitwidth) // 8 or 1


def tensor_of(value: Any, dtype: Any) -> Any:
    """Return a number as a tensor."""
    return tl.tensor(TensorHandle(np.array([value], dtype=_get_np_dtype(dtype)), dtype), dtype)


def _accept_bools() -> None:
    """Let kernels take Python bools, as compiled ones do. In Triton's interpreter their one has 32 bits, an error."""
    convert = _triton._implicit_cvt
    _triton._implicit_cvt = lambda value: tensor_of(value, tl.int1) if isinstance(value, bool) else convert(value)


_accept_bools()


def fit(routine: str, argument: str, value: Any, pointers: Any) -> Any:
    """Return ``value`` as a tensor of the element type of ``pointers``. Integers wrap, and floats are rounded.

    Errors: DtypeError for a pointer, or a float for an integer element; ArgumentError for a block with one pointer.
    """
    wanted = pointers.dtype.element_ty
    value = value.value if isinstance(value, tl.constexpr) else value
    exact = isinstance(value, float) and wanted.is_floating()  # to_tensor would round it to float32
    tensor = tensor_of(value, tl.float64) if exact else interpreter_semantic.to_tensor(value)
    if tensor.dtype.is_ptr() or (wanted.is_int() and tensor.dtype.is_floating()):
        refuse_call(DtypeError, routine, argument, describe(tensor), wanted_value(wanted))
    if tensor.type.is_block() and not pointers.type.is_block():
        refuse_call(ArgumentError, routine, argument, describe(tensor), "a scalar, for one pointer")
    if tensor.dtype != wanted and (wanted.is_bf16() or wanted.is_fp8()):
        tensor = tensor.to(tl.float32)  # the interpreter would take other types for bits
    return rounded(tensor, wanted)


def rounded(value: Any, element: Any) -> Any:
    """Convert floats and round to nearest. The interpreter's own conversion to bfloat16 truncates."""
    if not (element.is_bf16() and value.dtype.is_fp32()):
        return value.to(element)
    nearest = torch.from_numpy(np.ascontiguousarray(array(value))).to(torch.bfloat16)
    return tl.tensor(TensorHandle(nearest.view(torch.uint16).numpy(), element), value.type.with_element_ty(element))


def in_registers(value: Any) -> Any:
    """Return a Python number as a scalar tensor, and any other value unchanged."""
    plain = value.value if isinstance(value, tl.constexpr) else value
    return interpreter_semantic.to_tensor(plain) if isinstance(plain, (bool, int, float)) else value


def arange(count: Any, each: Any = 1) -> Any:
    """Return the numbers from 0 to count - 1."""
    return tl.arange(0, count)


def apart(count: Any) -> Any:
    """Return the numbers from 0 to 4 * count - 1."""
    return tl.arange(0, 4 * count)


def along(block: Any, dim: int) -> Any:
    """Return 0 ... extent - 1 along dimension ``dim`` of ``block``, with an extent of 1 along the others."""
    shape = [int(extent) if place == dim else 1 for place, extent in enumerate(block.shape)]
    return tl.reshape(tl.arange(0, int(block.shape[dim])), shape)


def blank(shape: Any, dtype: Any, like: Any) -> Any:
    """Return a block of zeros. ``like`` matters in Gluon only."""
    return tl.zeros(shape, dtype)


def laid_out(block: Any, like: Any) -> Any:
    """Return ``block``: layouts are Gluon's."""
    return block


def in_gluon() -> bool:
    """Return False: Gluon has no interpreter."""
    return False


def threads(ctx: Any) -> int:
    """Return the number of threads that block sizes are computed from. It is large, so that there are few blocks."""
    return 256
