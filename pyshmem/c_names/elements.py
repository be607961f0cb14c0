"""Which element types a typed name accepts: like a C compiler, which refuses a ``long *`` for an ``int *``.

If an array has an element type, it must have the size and kind (integer, floating point, complex) of the name's; signed and
unsigned may be mixed. Bytes are accepted by every name, as ``char *`` is with a cast in C. Plain addresses and buffers of
bytes have no element type and are accepted as they are.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from pyshmem.base.errors import DtypeError, refuse
from pyshmem.c_names.types import CType
from pyshmem.memory.arguments import DTYPES, name_of

_KINDS = {"i": "integer", "u": "integer", "b": "boolean", "f": "floating", "c": "complex"}  # NumPy's letters
# struct's and ctypes'
_LETTERS = {**dict.fromkeys("bBhHiIlLqQnN", "integer"), **dict.fromkeys("efdg", "floating"), "?": "boolean"}

_FLOATS = (torch.float16, torch.float32, torch.float64)


class Elements(NamedTuple):
    """An element type. ``bytes``: the expression that views the array as bytes."""

    name: str
    kind: str
    size: int
    bytes: str


def require_elements(routine: str, argument: str, where: Any, kind: CType) -> None:
    """Errors: DtypeError if ``where`` has an element type that ``kind`` does not accept."""
    held = _elements(where)
    if held is None or _may_stand_for(held, kind):
        return
    wants = f"elements of {kind.dtype.itemsize} bytes" if kind.c == "void" else f"{kind.c} ({kind.numpy}) elements"
    refuse(DtypeError, routine, argument, f"{held.name} elements", f"{wants}, or their bytes by {held.bytes}")


@cache
def sizes_of(kind: CType) -> dict[torch.dtype, int]:
    """The element size of each torch dtype that is accepted for ``kind``."""
    return {dtype: dtype.itemsize for dtype in DTYPES if _may_stand_for(_of_torch(dtype), kind)}


def _may_stand_for(held: Elements, kind: CType) -> bool:
    if kind.name == "mem" or (held.kind, held.size) == ("integer", 1):
        return True
    if kind.c == "void" or held.kind == "boolean":
        return held.size == kind.dtype.itemsize
    wanted = _of_torch(kind.dtype) if kind.numpy.kind == "V" else _of_numpy(kind.numpy)
    return wanted is not None and (held.kind, held.size) == (wanted.kind, wanted.size)


def _elements(where: Any) -> Elements | None:
    """The element type of ``where``; None for bytes and for objects without one."""
    if isinstance(where, torch.Tensor):
        return _of_torch(where.dtype)
    if isinstance(where, np.ndarray):
        return _of_numpy(where.dtype)
    if isinstance(where, ctypes._Pointer):
        letter, size = getattr(where._type_, "_type_", None), ctypes.sizeof(where._type_)
    else:
        try:
            view = memoryview(where)
        except TypeError:
            return None
        letter, size = view.format.lstrip("@=<>!"), view.itemsize
    if not isinstance(letter, str) or letter not in _LETTERS:
        return None
    name = f"{type(where).__name__}'s {8 * size}-bit {_LETTERS[letter]}"
    return Elements(name, _LETTERS[letter], size, "ctypes.cast(..., ctypes.c_void_p)")


def _of_torch(dtype: torch.dtype) -> Elements:
    name = name_of(dtype)
    if dtype.is_floating_point:
        kind = "floating" if dtype in _FLOATS else name  # bfloat16 is not float16
    else:
        kind = "complex" if dtype.is_complex else "boolean" if dtype is torch.bool else "integer"
    return Elements(name, kind, dtype.itemsize, ".view(torch.uint8)")


def _of_numpy(dtype: np.dtype[Any]) -> Elements | None:
    if dtype.kind == "S" or (dtype.kind == "V" and dtype.names is None):  # char[n] and void
        return None
    kind = _KINDS.get(dtype.kind, dtype.kind) if dtype.isnative else "foreign"
    return Elements(str(dtype), kind, dtype.itemsize, ".view(np.uint8)")
