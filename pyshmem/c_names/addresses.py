"""Converts the arguments that are pointers in C to arrays that the Python API accepts.

An address is a torch tensor, a NumPy array, a ctypes object or pointer, any object with a buffer or an array interface, or a
plain int; None is NULL. It stands for the memory from its first byte on: a call may use elements beyond the end of a tensor,
up to the end of its storage, so ``x[3]`` and ``x[3:]`` are both ``&x[3]``. If the argument has an element type, it must be
the name's.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.c_names.elements import require_elements
from pyshmem.c_names.types import LONG_DOUBLE, TYPES, CType
from pyshmem.memory.arguments import an, count_of, integer_of
from pyshmem.memory.heap import heaps

Tensor = torch.Tensor
_KINDS = {each.dtype: np.dtype(str(each.dtype).removeprefix("torch.")) for each in TYPES.values()}
_FIRST_PAGE = 4096  # no data have smaller addresses; integers passed by mistake do
_INTERFACE = "__array_interface__"
_ADDRESS = "an address; for C's &x of a scalar, pass an array of one element"


def word(routine: str, argument: str, where: Any, kind: CType) -> Any:
    """The one element of type ``kind`` at ``where``; not for long double. Errors: as in cells."""
    if type(where) is Tensor and where.dtype is kind.dtype:
        count = where.numel()
        if count == 1:
            return where
        if count:
            return where.as_strided((1,), (1,))
    return exactly(routine, argument, where, kind, 1)


def exactly(routine: str, argument: str, where: Any, kind: CType, count: int) -> Any:
    """A flat tensor or NumPy array of exactly ``count`` elements at ``where``."""
    found = cells(routine, argument, where, kind, count)
    count = integer_of(count)
    return found if found.shape == (count,) else found.reshape(-1)[:count]


def cells(routine: str, argument: str, where: Any, kind: CType, count: int | None) -> Any:
    """A tensor or NumPy array of the type's dtype at ``where``, with at least ``count`` elements; None means all that exist.

    Errors: ArgumentError for NULL and for arguments that are no address, DtypeError for elements of another type,
    OutOfRangeError if a tensor's storage, an array or the heap is too short.
    """
    dtype = kind.dtype
    if count is not None and (type(count) is not int or count < 0):
        count = count_of(routine, "nelems", count)
    if isinstance(where, Tensor):
        if where.dtype is dtype and (count is None or where.numel() >= count) and kind is not LONG_DOUBLE:
            return where
        require_elements(routine, argument, where, kind)
        return _tensor_as(routine, argument, where, dtype, count)
    if isinstance(where, (ctypes.c_void_p, ctypes.c_char_p, ctypes._Pointer)):
        require_elements(routine, argument, where, kind)
        where = ctypes.cast(where, ctypes.c_void_p).value
    if where is None or (isinstance(where, int) and where == 0):
        if count:
            got = "NULL" if where is None else "the integer 0, which is NULL"
            refuse(ArgumentError, routine, argument, got, _ADDRESS + "; NULL is accepted for 0 elements only")
        return torch.empty(0, dtype=dtype, device="cpu")
    if isinstance(where, int) and not isinstance(where, bool):
        return _memory_as(routine, argument, where, dtype, count)
    if hasattr(where, "__cuda_array_interface__"):
        tensor = torch.as_tensor(where)
        require_elements(routine, argument, tensor, kind)
        return _tensor_as(routine, argument, tensor, dtype, count)
    array = _array_at(routine, argument, where)
    require_elements(routine, argument, array if hasattr(where, _INTERFACE) else where, kind)
    return _array_as(routine, argument, array, dtype, count)


def _array_at(routine: str, argument: str, where: Any) -> np.ndarray[Any, Any]:
    """The memory of an object as a NumPy array, of its own elements if it has an array interface, otherwise of bytes."""
    if isinstance(where, (np.number, np.bool_)):
        got = f"the NumPy {'integer' if isinstance(where, np.integer) else type(where).__name__} {where}"
        refuse(ArgumentError, routine, argument, got, "an address: A[i:] is C's &A[i]")
    try:
        array = np.asarray(where) if hasattr(where, _INTERFACE) else np.frombuffer(where, np.uint8)
    except (TypeError, ValueError, BufferError):
        wants = "an address: a tensor, an array or an int"
        refuse(ArgumentError, routine, argument, an(type(where).__name__), wants)
    if array.dtype.hasobject:
        refuse(DtypeError, routine, argument, str(array.dtype), "elements of fixed size")
    return array


class _Memory:
    """Gives NumPy ``nbytes`` of memory at an address, and keeps ``owner`` alive with it."""

    def __init__(self, address: int, nbytes: int, owner: Any = None) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def _memory_as(routine: str, argument: str, address: int, dtype: torch.dtype, count: int | None) -> Any:
    """The memory at ``address``: a tensor if it is in a heap, otherwise a NumPy array."""
    if address < _FIRST_PAGE:
        refuse(ArgumentError, routine, argument, f"the integer {address}", _ADDRESS)
    item = dtype.itemsize
    nbytes = (count or 0) * item
    for heap in heaps.values():
        if 0 <= address - heap.base < heap.size:
            break
    else:
        return _foreign(address, dtype, nbytes)
    offset = address - heap.base
    if count is None:
        block = heap.allocator.nearest(offset)
        nbytes = (block[1] - offset) // item * item if block and block[0] <= offset < block[1] else 0
    if nbytes > heap.size - offset:
        wants = f"at most {heap.size - offset}, to the end of the heap"
        refuse(OutOfRangeError, routine, argument, f"{nbytes} bytes from heap offset {offset}", wants)
    if not nbytes:
        return torch.empty(0, dtype=dtype, device=heap.device)
    octets = heap.bytes_at(address, nbytes)
    return _tensor_as(routine, argument, octets, dtype, nbytes // item) if address % item else octets.view(dtype)


def _foreign(address: int, dtype: torch.dtype, nbytes: int) -> Any:
    """Memory of this process outside its heaps: private, or a peer's memory that shmem_ptr returned."""
    for heap in heaps.values():
        if heap.device != "cpu" and heap.holds(address):
            return heap.bytes_at(address, nbytes).view(dtype)
    octets = np.asarray(_Memory(address, nbytes))
    return _viewed(octets, dtype) if address % dtype.itemsize else torch.from_numpy(octets).view(dtype)


def _tensor_as(routine: str, argument: str, where: Tensor, dtype: torch.dtype, count: int | None) -> Any:
    if not where.is_contiguous():
        got = f"a tensor of shape {tuple(where.shape)} that is not contiguous"
        refuse(ArgumentError, routine, argument, got, "a contiguous one; strides are separate arguments in C")
    storage = where.untyped_storage()
    offset = where.storage_offset() * where.itemsize
    left = int(storage.nbytes() - offset)
    if count is None:
        count = left // dtype.itemsize
    if count * dtype.itemsize > left:
        refuse(
            OutOfRangeError,
            routine,
            argument,
            f"{count} elements of {dtype.itemsize} bytes",
            f"at most {left} bytes, to the end of the tensor's storage",
        )
    if offset % dtype.itemsize or where.data_ptr() % dtype.itemsize:  # NumPy has misaligned views
        if where.device.type != "cpu":
            refuse(
                ArgumentError, routine, argument, f"address {where.data_ptr():#x}", f"a multiple of {dtype.itemsize}"
            )
        return _array_as(routine, argument, np.asarray(_Memory(where.data_ptr(), left, where)), dtype, count)
    return torch.empty(0, dtype=dtype, device=where.device).set_(storage, offset // dtype.itemsize, (count,), (1,))


def _array_as(routine: str, argument: str, where: np.ndarray[Any, Any], dtype: torch.dtype, count: int | None) -> Any:
    if not where.flags.c_contiguous:
        got = f"an array of shape {where.shape} that is not contiguous"
        refuse(ArgumentError, routine, argument, got, "a contiguous one; strides are separate arguments in C")
    nbytes = where.nbytes // dtype.itemsize * dtype.itemsize if count is None else count * dtype.itemsize
    if nbytes > where.nbytes:
        refuse(OutOfRangeError, routine, argument, f"{nbytes} bytes", f"at most the array's {where.nbytes}")
    return _viewed(where.reshape(-1).view(np.uint8)[:nbytes], dtype)


def _viewed(octets: np.ndarray[Any, Any], dtype: torch.dtype) -> Any:
    """The bytes viewed as ``dtype``, with NumPy or, if NumPy lacks the type, with torch."""
    kind = _KINDS.get(dtype)
    return torch.from_numpy(octets).view(dtype) if kind is None else octets.view(kind)
