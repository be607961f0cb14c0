"""The operators of reductions and scans, and the element types that each is defined for. Spec: OpenSHMEM 1.6, 9.9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

_INTEGERS = tuple(getattr(torch, f"{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("", "u"))
_FLOATS = (torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)
HALF = (torch.float16, torch.bfloat16)
_REALS = (*_INTEGERS, *_FLOATS, *HALF, np.dtype("longdouble"))
_NUMBERS = (*_REALS, *_COMPLEX, np.dtype("clongdouble"))
# the number of each type's loops in _loops.h, which has none for long double
LOOPS = {dtype: loop for loop, dtype in enumerate((*_INTEGERS, *_FLOATS, *_COMPLEX, *HALF))}


class Operator(NamedTuple):
    code: int  # its number in _collectives.h
    torch: Callable[..., Any]
    numpy: Callable[..., Any]  # for dtypes that torch lacks
    dtypes: tuple[Any, ...]


OPERATORS = {
    "sum": Operator(0, torch.add, np.add, _NUMBERS),
    "prod": Operator(1, torch.mul, np.multiply, _NUMBERS),
    "min": Operator(2, torch.minimum, np.minimum, _REALS),
    "max": Operator(3, torch.maximum, np.maximum, _REALS),
    "and": Operator(4, torch.bitwise_and, np.bitwise_and, _INTEGERS),
    "or": Operator(5, torch.bitwise_or, np.bitwise_or, _INTEGERS),
    "xor": Operator(6, torch.bitwise_xor, np.bitwise_xor, _INTEGERS),
}
REDUCE, INSCAN, EXSCAN = range(3)  # how a Fold combines


class Fold(NamedTuple):
    """A reduction or scan: it combines ``nelems`` elements of all members at ``src`` into ``dest`` on all members."""

    mode: int  # REDUCE, INSCAN or EXSCAN
    op: str
    dtype: Any
    dest: int
    src: int
    nelems: int
