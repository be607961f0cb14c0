"""Symmetric arrays, with the names of torch's functions. A barrier follows the fill: peers may use an array at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.allocation import allocate, finish, is_symmetric
from pyshmem.memory.arguments import an, as_dtype, count_of, refuse_dtype, require_init, scalar
from pyshmem.memory.heap import Device

__all__ = [
    "arange", "array", "as_symmetric", "empty", "empty_like", "full", "full_like", "linspace", "ones", "ones_like",
    "rand", "randint", "randn", "zeros", "zeros_like",
]  # fmt: skip

# torch has no fill, arange or comparison for these dtypes: NumPy does it on the same memory.
_NUMPY_ONLY = frozenset((torch.uint16, torch.uint32, torch.uint64))
_RANDOM = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def empty(*size: Any, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return an uninitialised symmetric array.

    size: the shape, as ints or one tuple.
    dtype: of torch or NumPy; None means torch's default dtype.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return _filled("empty", size, dtype, device, None)


def zeros(*size: Any, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return a symmetric array of zeros.

    size: the shape, as ints or one tuple.
    dtype: of torch or NumPy; None means torch's default dtype.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return _filled("zeros", size, dtype, device, 0)


def ones(*size: Any, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return a symmetric array of ones.

    size: the shape, as ints or one tuple.
    dtype: of torch or NumPy; None means torch's default dtype.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return _filled("ones", size, dtype, device, 1)


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return a symmetric array filled with ``fill_value``.

    size: the shape, as ints or one tuple.
    dtype: of torch or NumPy; None means the dtype that torch gives to fill_value.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return _full("full", size, fill_value, dtype, device)


def array(data: Any, *, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return a symmetric copy of ``data``; the values may differ between PEs.

    data: a tensor, a NumPy array or nested sequences of numbers.
    dtype: of torch or NumPy; None means the dtype of data, for Python's floats torch's default, float32.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return _array("array", data, dtype, device)


def as_symmetric(data: Any) -> torch.Tensor:
    """Return ``data`` itself if it is contiguous and symmetric, otherwise a symmetric copy of it.

    data: a tensor, a NumPy array or nested sequences of numbers; symmetric on all PEs or on none.
    Order: a copy is collective over TEAM_WORLD, with a barrier on return; returning data itself is local.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, NotInitializedError, on all PEs alike.
    """
    usable = isinstance(data, torch.Tensor) and is_symmetric(data) and data.is_contiguous()
    return data if usable else _array("as_symmetric", data, None, None)


def arange(*bounds: Any, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return a symmetric array of evenly spaced values.

    bounds: end, (start, end) or (start, end, step), as in torch.
    dtype: of torch or NumPy; None means torch's choice.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    kind = None if dtype is None else as_dtype("arange", dtype)
    if kind in _NUMPY_ONLY:
        return _copied("arange", torch.from_numpy(np.arange(*bounds, dtype=_numpy(kind))), device)
    return _copied("arange", torch.arange(*bounds, dtype=kind, device="cpu"), device)


def linspace(
    start: float, end: float, steps: int, *, dtype: Any = None, device: Device | torch.device | None = None
) -> torch.Tensor:
    """Return a symmetric array of ``steps`` evenly spaced values from ``start`` to ``end``, both included.

    dtype: of torch or NumPy; None means torch's default dtype.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return _copied(
        "linspace",
        torch.linspace(start, end, steps, dtype=None if dtype is None else as_dtype("linspace", dtype), device="cpu"),
        device,
    )


def rand(
    *size: Any, dtype: Any = None, device: Device | torch.device | None = None, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Return a symmetric array of random values, uniform in [0, 1).

    size: the shape, as ints or one tuple.
    dtype: a floating-point or complex dtype of torch or NumPy; None means torch's default dtype.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    generator: torch's generator of random numbers; each PE has its own values unless the seeds are equal.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return finish("rand", _new("rand", size, _random("rand", dtype), device).uniform_(generator=generator))


def randn(
    *size: Any, dtype: Any = None, device: Device | torch.device | None = None, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Return a symmetric array of random values of the normal distribution.

    size: the shape, as ints or one tuple.
    dtype: a floating-point or complex dtype of torch or NumPy; None means torch's default dtype.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    generator: torch's generator of random numbers; each PE has its own values unless the seeds are equal.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    return finish("randn", _new("randn", size, _random("randn", dtype), device).normal_(generator=generator))


def randint(
    low: int,
    high: int,
    size: Any,
    *,
    dtype: Any = torch.int64,
    device: Device | torch.device | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return a symmetric array of random integers, at least ``low`` and less than ``high``.

    size: the shape, as ints or one tuple.
    dtype: of torch or NumPy.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    generator: torch's generator of random numbers; each PE has its own values unless the seeds are equal.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    kind = as_dtype("randint", dtype)
    values = torch.randint(low, high, shape_of("randint", (size,)), generator=generator, device="cpu")
    return _copied(
        "randint",
        torch.from_numpy(values.numpy().astype(_numpy(kind))) if kind in _NUMPY_ONLY else values.to(kind),
        device,
    )


def empty_like(other: Any, *, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return an uninitialised symmetric array with the shape of ``other``.

    other: any tensor or array.
    dtype: of torch or NumPy; None means the dtype of other.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    shape, kind = _form("empty_like", other, dtype)
    return _filled("empty_like", shape, kind, device, None)


def zeros_like(other: Any, *, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return a symmetric array of zeros with the shape of ``other``.

    other: any tensor or array.
    dtype: of torch or NumPy; None means the dtype of other.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    shape, kind = _form("zeros_like", other, dtype)
    return _filled("zeros_like", shape, kind, device, 0)


def ones_like(other: Any, *, dtype: Any = None, device: Device | torch.device | None = None) -> torch.Tensor:
    """Return a symmetric array of ones with the shape of ``other``.

    other: any tensor or array.
    dtype: of torch or NumPy; None means the dtype of other.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    shape, kind = _form("ones_like", other, dtype)
    return _filled("ones_like", shape, kind, device, 1)


def full_like(
    other: Any, fill_value: Any, *, dtype: Any = None, device: Device | torch.device | None = None
) -> torch.Tensor:
    """Return a symmetric array filled with ``fill_value``, with the shape of ``other``.

    other: any tensor or array.
    dtype: of torch or NumPy; None means the dtype of other.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD, with the same shape and dtype on all PEs; a barrier on return.
    Errors: HeapExhaustedError, ArgumentError, DtypeError, OutOfRangeError, NotInitializedError, on all PEs alike.
    """
    shape, kind = _form("full_like", other, dtype)
    return _full("full_like", shape, fill_value, kind, device)


def _form(routine: str, other: Any, dtype: Any) -> tuple[tuple[int, ...], Any]:
    """The shape of ``other``, and ``dtype`` or else its dtype. Errors: ArgumentError if it is no array."""
    if not (hasattr(other, "shape") and hasattr(other, "dtype")):
        refuse(ArgumentError, routine, "other", an(type(other).__name__), "a tensor or an array")
    return tuple(other.shape), other.dtype if dtype is None else dtype


def shape_of(routine: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape given by ``*size``, ints or one sequence of ints. Errors: ArgumentError, OutOfRangeError if negative."""
    if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)):
        size = tuple(size[0])
    for extent in size:
        if isinstance(extent, (tuple, list, str, type, torch.dtype, np.dtype)):
            wants = "ints, or one tuple of ints; the dtype by name: dtype="
            refuse(ArgumentError, routine, "size", ", ".join(map(repr, size)), wants)
    return tuple(count_of(routine, "size", extent) for extent in size)


def _filled(
    routine: str, size: tuple[Any, ...], dtype: Any, device: Device | torch.device | None, value: int | None
) -> torch.Tensor:
    target = _new(routine, size, dtype, device)
    return finish(routine, target if value is None else _fill(target, value))


def _full(routine: str, size: Any, fill_value: Any, dtype: Any, device: Device | torch.device | None) -> torch.Tensor:
    require_init(routine)
    count = fill_value.numel() if isinstance(fill_value, torch.Tensor) else np.size(fill_value)
    if count != 1 or isinstance(fill_value, (list, tuple)):
        got = f"{an(type(fill_value).__name__)} of {count} elements"
        refuse(ArgumentError, routine, "fill_value", got, "one number; shmem.array copies an array")
    kind = torch.full((), fill_value).dtype if dtype is None else as_dtype(routine, dtype)
    value = scalar(routine, "fill_value", fill_value, kind)
    return finish(routine, _fill(_new(routine, (size,), kind, device), value))


def _array(routine: str, data: Any, dtype: Any, device: Device | torch.device | None) -> torch.Tensor:
    require_init(routine)
    kind = None if dtype is None else as_dtype(routine, dtype)
    if isinstance(data, np.ndarray):
        as_dtype(routine, data.dtype)
        # torch refuses negative strides, even of extent 1
        plain = data.flags.carray and min(data.strides, default=0) >= 0
        local = torch.from_numpy(data if plain else np.array(data, order="C"))
    else:
        try:
            local = torch.as_tensor(data, dtype=kind)
        except (TypeError, ValueError, RuntimeError) as error:
            got = f"{an(type(data).__name__)}: {error}"
            refuse(ArgumentError, routine, "data", got, "a tensor, a NumPy array or nested sequences of numbers")
    return _copied(routine, local if kind is None else local.to(kind), device)


def _new(routine: str, size: tuple[Any, ...], dtype: Any, device: Device | torch.device | None) -> torch.Tensor:
    kind = torch.get_default_dtype() if dtype is None else as_dtype(routine, dtype)
    return allocate(routine, shape_of(routine, size), kind, device)


def _random(routine: str, dtype: Any) -> torch.dtype:
    kind = torch.get_default_dtype() if dtype is None else as_dtype(routine, dtype)
    return kind if kind in _RANDOM else refuse_dtype(routine, "dtype", kind, _RANDOM)


def _fill(target: torch.Tensor, value: Any) -> torch.Tensor:
    if target.dtype in _NUMPY_ONLY:
        bits = target.dtype.itemsize * 8
        signed = value - (1 << bits) if value >> (bits - 1) else value
        target.view(getattr(torch, f"int{bits}")).fill_(signed)
        return target
    return target.fill_(value)


def _copied(routine: str, local: torch.Tensor, device: Device | torch.device | None) -> torch.Tensor:
    if local.is_sparse or local.device.type not in ("cpu", "cuda"):
        got = f"a {local.layout} tensor on {local.device}"
        refuse(ArgumentError, routine, "data", got, "dense data in CPU or GPU memory")
    target = allocate(routine, tuple(local.shape), local.dtype, device)
    return finish(routine, target.copy_(local.detach().resolve_neg().resolve_conj()))


def _numpy(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")
