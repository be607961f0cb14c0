"""The checks of arguments: symmetric arrays must be symmetric and live, and the two sides of a copy must fit.

The checks return addresses. Each check has a fast path in C for valid calls with plain torch tensors and NumPy arrays. The
slow path here handles all other calls: CuPy arrays, tensor subclasses, structures, and the messages of refusals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

import numpy as np
import torch

from pyshmem.base.errors import (
    ArgumentError,
    DtypeError,
    NotSymmetricError,
    OutOfRangeError,
    c_name,
    refuse,
    refuse_state,
)
from pyshmem.base.job import job
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import Heap, heaps, views
from pyshmem.native._native import locate, locate_word, plain_array, use_ndarrays

Tensor = torch.Tensor
# all dtypes, by DLPack's code of the type
_CODES = {
    0: ("int8", "int16", "int32", "int64"),
    1: ("uint8", "uint16", "uint32", "uint64"),
    2: ("float16", "float32", "float64"),
    4: ("bfloat16",),
    5: ("complex64", "complex128"),
    6: ("bool",),
    10: ("float8_e4m3fn",),
    11: ("float8_e4m3fnuz",),
    12: ("float8_e5m2",),
    13: ("float8_e5m2fnuz",),
}
KINDS = {  # torch's dtypes by code * 16 + bytes, as locate_word gives them
    code * 16 + dtype.itemsize: dtype
    for code, names in _CODES.items()
    for dtype in (getattr(torch, name) for name in names)
}
DTYPES = tuple(KINDS.values())
_TORCH = {np.dtype(name): getattr(torch, name) for code in (0, 1, 2, 5, 6) for name in _CODES[code]}  # those of NumPy
use_ndarrays(
    import_module("numpy.core" if np.__version__.startswith("1.") else "numpy._core")._multiarray_umath._ARRAY_API,
    np.ndarray,
    np.integer,
    {np.dtype(name): code * 256 + np.dtype(name).itemsize for code in (0, 1, 2, 5, 6) for name in _CODES[code]},
)
BOUNDS = {  # the least and the greatest value of each integer type
    each: (0, 1) if each is torch.bool else (torch.iinfo(each).min, torch.iinfo(each).max)
    for each in DTYPES
    if not each.is_floating_point and not each.is_complex
}
_MOST = torch.finfo(torch.float32).max
# between which values an element has room for any number of a type, as it is or rounded
_HELD: dict[type, Mapping[Any, tuple[float, float]]] = {
    int: BOUNDS,
    float: {torch.float64: (-math.inf, math.inf), torch.float32: (-_MOST, _MOST)},
}
WHOLE = frozenset(np.dtype(code).type for code in np.typecodes["AllInteger"])  # the types of NumPy's integers
_NUMBERS: dict[type, type] = {**dict.fromkeys(WHOLE, int), np.float64: float, np.float32: float, np.float16: float}


class DeviceArray(Protocol):
    """An array in GPU memory of another library, such as CuPy's."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


Array: TypeAlias = "Tensor | np.ndarray[Any, Any] | DeviceArray"  # what host calls accept; symmetric where they say so


class Operand(NamedTuple):
    """An array argument of any library. ``dtype`` is torch's, or NumPy's if torch has none.

    ``heap`` is the heap in the same kind of memory; the array need not lie in it.
    """

    address: int
    nelems: int
    dtype: Any
    itemsize: int
    shape: tuple[int, ...]
    heap: Heap


class Sides(NamedTuple):
    """A checked copy between a symmetric array and a private array."""

    heap: Heap  # of the symmetric array
    private: Heap  # in the private array's kind of memory
    symmetric: int  # the address of the symmetric array on this PE
    own: int  # the address of the private array
    nbytes: int


def transfer(routine: str, names: tuple[str, str], symmetric: Any, private: Any, size: int | None) -> Sides:
    """Check a contiguous copy between two arrays.

    size: the number of elements; None means all of ``private``. ``symmetric`` may be larger.
    names: the names of the two arguments in the routine.
    """
    found = locate(views, symmetric, private, size)
    if found is not None:
        require_writable(routine, names[1], private)
        heap, near, own, nbytes = found
        return Sides(heap, heap, near, own, nbytes)
    return _transfer(routine, names, symmetric, private, size)


def _transfer(routine: str, names: tuple[str, str], symmetric: Any, private: Any, size: int | None) -> Sides:
    require_init(routine)
    near, own = describe(routine, names[0], symmetric), describe(routine, names[1], private)
    require_one_dtype(routine, names, near.dtype, own.dtype)
    count = own.nelems if size is None else count_of(routine, "size", size)
    if count and near.nelems:  # a private copy, as x[mask] makes, is one of any size
        require_symmetric(routine, names[0], near, near.itemsize)
    for name, side in zip(names, (near, own), strict=True):
        if count > side.nelems:
            longer = names[1] if size is None else "size"
            got = f"{count} elements with {name} of shape {side.shape}"
            refuse(OutOfRangeError, routine, longer, got, f"at most {side.nelems}")
    nbytes = count * own.itemsize
    if not nbytes:
        return Sides(cpu, cpu, cpu.base, cpu.base, 0)  # the address of an empty array may lie outside the heap
    require_symmetric(routine, names[0], near, nbytes)
    require_writable(routine, names[1], private)
    return Sides(near.heap, own.heap, near.address, own.address, nbytes)


def require_one_dtype(routine: str, names: tuple[str, str], symmetric: Any, private: Any) -> None:
    """Require elements of one type in both arrays. Errors: DtypeError."""
    if symmetric != private:
        wants = f"the {name_of(symmetric)} of {names[0]}: no casting between arrays"
        refuse(DtypeError, routine, names[1], f"{name_of(private)} elements", wants)


def word(routine: str, argument: str, target: Any) -> tuple[Heap, int, Any]:
    """Return (heap, address on this PE, dtype) of a symmetric array of exactly one element."""
    found = locate_word(views, target)
    if found is not None:
        return found[0], found[1], KINDS[found[2]]
    require_init(routine)
    near = describe(routine, argument, target)
    if near.nelems != 1:
        refuse(
            ArgumentError, routine, argument, f"an array of shape {near.shape}", "exactly one element, such as a[j:j+1]"
        )
    require_symmetric(routine, argument, near, near.itemsize)
    require_aligned(routine, argument, near)
    return near.heap, near.address, near.dtype


def require_aligned(routine: str, argument: str, operand: Operand) -> None:
    """Require words at multiples of their size, as PEs access them atomically. Errors: ArgumentError."""
    least = min(operand.itemsize, 8)
    if operand.nelems and operand.address % least:
        wants = f"a multiple of {least}, the size of the word"
        refuse(ArgumentError, routine, argument, f"the address {operand.address:#x}, which is not aligned", wants)


def symmetric_array(routine: str, argument: str, array: Any) -> Operand:
    """Describe a whole symmetric array. An empty array need not be symmetric."""
    require_init(routine)
    operand = describe(routine, argument, array)
    if operand.nelems:
        require_symmetric(routine, argument, operand, operand.nelems * operand.itemsize)
    return operand


def any_array(routine: str, argument: str, array: Any) -> tuple[Operand, bool]:
    """Describe a whole array and return whether it is private. C names, as the specification, take symmetric arrays only.

    Errors: those of symmetric_array, for memory in a heap that is not live and for C names.
    """
    require_init(routine)
    operand = describe(routine, argument, array)
    nbytes = operand.nelems * operand.itemsize
    if nbytes:
        require_writable(routine, argument, array)
    if not nbytes or operand.heap.allocator.covers(operand.address - operand.heap.base, nbytes):
        return operand, False
    if operand.heap.holds(operand.address) or c_name():
        require_symmetric(routine, argument, operand, nbytes)
    return operand, True


def may_be_private(*addresses: int) -> bool:
    """Return whether any_array takes arrays at these addresses, which are in no live allocation, as private ones."""
    return not any(map(cpu.holds, addresses)) and not c_name()


def require_init(routine: str) -> None:
    """Errors: NotInitializedError before init and after the last finalize."""
    if not job.inits:
        refuse_state(routine, "finalized" if job.generation else "not initialized")


def describe(routine: str, argument: str, array: Any, contiguous: bool = True) -> Operand:
    """Describe a torch, NumPy or CuPy array. Errors: ArgumentError for another kind, layout or device; DtypeError."""
    found = plain_array(views, array)
    if found is not None:
        heap, address, nelems, kind = found
        return Operand(address, nelems, KINDS[kind], KINDS[kind].itemsize, tuple(array.shape), heap)
    if isinstance(array, Tensor):
        operand, dense = _describe_tensor(routine, argument, array), array.is_contiguous()
    elif isinstance(array, np.ndarray):
        if array.dtype.hasobject or not array.dtype.isnative:
            refuse(DtypeError, routine, argument, str(array.dtype), "elements of fixed size in native byte order")
        address, dtype = array.__array_interface__["data"][0], _TORCH.get(array.dtype, array.dtype)
        operand = Operand(address, array.size, dtype, array.itemsize, array.shape, cpu)
        dense = array.flags.c_contiguous
    elif "cuda" in heaps and hasattr(array, "__cuda_array_interface__"):
        operand, dense = _describe_device_array(array.__cuda_array_interface__)
    else:
        in_kernel = type(array).__module__.startswith("triton")
        wants = "a torch tensor or a NumPy array" + "; in kernels, the call of pyshmem.device" * in_kernel
        wants += ", such as np.frombuffer(x, dtype) of it" * isinstance(array, (bytes, bytearray, memoryview))
        wants += "; NumPy's a[j] is a copy of the element, which is in memory as a[j:j+1]" * isinstance(
            array, np.generic
        )
        refuse(ArgumentError, routine, argument, an(type(array).__name__), wants)
    if contiguous and not dense:
        got = f"an array of shape {operand.shape} that is not C-contiguous"
        flat = f"a.{'view' if isinstance(array, Tensor) else 'reshape'}(-1)[k:]"
        wants = f"a contiguous one; for iput and iget {flat}, from the first element on, and a stride"
        refuse(ArgumentError, routine, argument, got, wants)
    return operand


def _describe_tensor(routine: str, argument: str, array: Tensor) -> Operand:
    heap = heaps.get(array.device.type)
    if array.layout is not torch.strided or heap is None or array.device.index not in (None, heap.index):
        wants = "a dense tensor in CPU memory" + (f" or on cuda:{heaps['cuda'].index}" if "cuda" in heaps else "")
        refuse(ArgumentError, routine, argument, f"a {array.layout} tensor on {array.device}", wants)
    if array.dtype not in DTYPES:
        refuse(DtypeError, routine, argument, str(array.dtype), "a boolean, integer, floating or complex dtype")
    if array.is_conj() or array.is_neg():
        got = "a lazily conjugated or negated view"
        refuse(ArgumentError, routine, argument, got, "x.resolve_conj() or x.resolve_neg()")
    return Operand(array.data_ptr(), array.numel(), array.dtype, array.itemsize, tuple(array.shape), heap)


def _describe_device_array(interface: dict[str, Any]) -> tuple[Operand, bool]:
    """Describe an array that has __cuda_array_interface__, such as CuPy's, and return whether it is contiguous."""
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    step, dense = dtype.itemsize, True
    for extent, stride in zip(reversed(shape), reversed(interface.get("strides") or ()), strict=False):
        dense &= extent == 1 or stride == step
        step *= extent
    nelems = math.prod(shape)
    operand = Operand(interface["data"][0], nelems, _TORCH.get(dtype, dtype), dtype.itemsize, shape, heaps["cuda"])
    return operand, dense or not nelems


def require_symmetric(routine: str, argument: str, operand: Operand, nbytes: int) -> None:
    """Require ``nbytes`` of one live allocation.

    Errors: NotSymmetricError for private memory, freed memory and memory of another PE; OutOfRangeError if the bytes
    exceed the allocation.
    """
    heap = operand.heap
    offset = operand.address - heap.base
    if heap.allocator.covers(offset, nbytes):
        return
    what = f"{an(name_of(operand.dtype))} array of shape {operand.shape}"
    wants = "an array from shmem.zeros, empty, ... or a view of one"
    if 0 <= offset < heap.size:
        block = heap.allocator.nearest(offset)
        if block and block[0] <= offset < block[1]:
            refuse(
                OutOfRangeError,
                routine,
                argument,
                f"{nbytes} bytes from {heap.place(offset)}",
                f"at most {block[1] - offset}, to the end of its allocation",
            )
        refuse(NotSymmetricError, routine, argument, f"{what} that is not symmetric: its memory was freed", wants)
    if heap.holds(operand.address):
        why = "another PE's memory, as shmem.ptr returns it"
    else:
        why = "private memory, such as the copy that x[mask] makes, or memory of an earlier init"
    refuse(NotSymmetricError, routine, argument, f"{what} that is not symmetric: {why}", wants)


def require_writable(routine: str, argument: str, private: Any) -> None:
    """Require a writable target. Errors: ArgumentError for a read-only NumPy array, such as the bytes of a constant."""
    if argument != "source" and isinstance(private, np.ndarray) and not private.flags.writeable:
        refuse(ArgumentError, routine, argument, "a read-only array", "a writable array")


def count_of(routine: str, argument: str, value: Any) -> int:
    """Return a number of elements: an int that is not negative. Errors: ArgumentError, OutOfRangeError."""
    if is_int(value):
        if value >= 0:
            return int(value)
        refuse(OutOfRangeError, routine, argument, str(value), "0 or more")
    return count_of(routine, argument, exact_int(routine, argument, value))


def exact_int(routine: str, argument: str, value: Any) -> int:
    """Return an int of either sign. A bool is not an int. Errors: ArgumentError."""
    number = integer_of(value)
    if not is_int(number):
        refuse(ArgumentError, routine, argument, repr(value), "an int")
    return int(number)


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a Python int or float. A bool is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_int(value: Any) -> bool:
    """Return whether ``value`` is a Python or NumPy integer. A bool is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def integer_of(value: Any) -> Any:
    """Return the int in an integer tensor or array of one element, such as ``counts[i]``; otherwise ``value`` itself."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 and BOUNDS.get(value.dtype, (0, 1)) != (0, 1) else value
    if isinstance(value, np.ndarray):
        return value.item() if value.size == 1 and value.dtype.kind in "iu" else value
    return value


def scalar_of(value: Any) -> Any:
    """Return the Python number in a NumPy scalar or an array of one element; otherwise ``value`` itself."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.size == 1):
        return value.item()
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def scalar(routine: str, argument: str, value: Any, dtype: Any) -> Any:
    """Return ``value`` as a Python number that an element of ``dtype`` can hold.

    An integer must be represented exactly, also by a float element. A float is rounded to a float element as torch does,
    but not to infinity. Errors: DtypeError.
    """
    kind = type(value)
    if kind in _NUMBERS:
        kind = _NUMBERS[kind]
        value = kind(value)
    if kind is int or kind is float:
        low, high = _HELD[kind].get(dtype, (1, 0))
        if low <= value <= high:
            return value
    elif not isinstance(value, (int, float, complex)):
        value = scalar_of(value)
    if not isinstance(value, (bool, int, float, complex)):
        refuse(
            DtypeError,
            routine,
            argument,
            an(type(value).__name__),
            "a Python or NumPy scalar, or an array of one element",
        )
    held = _held(value, dtype)
    if held is None:
        refuse(DtypeError, routine, argument, repr(value), f"a value that {name_of(dtype)} can hold")
    return held


def _held(value: Any, dtype: torch.dtype) -> Any:
    if dtype.is_complex:
        part = torch.float32 if dtype is torch.complex64 else torch.float64
        parts = [_held(each, part) for each in (value.real, value.imag)]
        return None if None in parts else complex(*parts)
    if isinstance(value, complex):
        return None
    if dtype.is_floating_point:
        if isinstance(value, int) and -256 <= value <= 256 and dtype.itemsize > 1:
            return float(value)
        try:
            wide = float(value)
        except OverflowError:
            return None
        rounded = torch.tensor(wide, dtype=torch.float64, device="cpu").to(dtype).item()
        if math.isfinite(wide) and not math.isfinite(rounded):
            return None  # it became infinity, or NaN in a type that has no infinity
        return wide if not isinstance(value, int) or int(rounded) == value else None
    low, high = BOUNDS[dtype]
    return int(value) if math.isfinite(value) and value == int(value) and low <= value <= high else None


def as_dtype(routine: str, dtype: Any) -> torch.dtype:
    """Return torch's dtype for a dtype of torch or NumPy or a Python type. Errors: DtypeError."""
    if not isinstance(dtype, torch.dtype):
        try:
            dtype = _TORCH.get(np.dtype(dtype), dtype)
        except TypeError:
            dtype = repr(dtype)
    if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
        refuse(
            DtypeError,
            routine,
            "dtype",
            name_of(dtype),
            "a boolean, integer, floating or complex dtype of torch or NumPy",
        )
    return dtype


def an(word: str) -> str:
    """Return the word with its indefinite article."""
    return f"{'an' if word[:1] in 'aeioAEIO' else 'a'} {word}"


def name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def refuse_dtype(routine: str, argument: str, dtype: Any, wanted: Any) -> NoReturn:
    """Refuse ``dtype``, which is none of ``wanted``. Errors: DtypeError."""
    refuse(
        DtypeError,
        routine,
        argument,
        f"{name_of(dtype)} elements",
        "one of " + ", ".join(name_of(each) for each in wanted),
    )
