"""The operators of reductions and scans, and the element types that each is defined for. Spec: OpenSHMEM 1.6, 9.9."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


DONE, UNTOUCHED, STAGED, REFUSED = range(4)  # what a collective has left to do, as in _collectives.h
TARGET, SOURCE = 1, 2  # bits of ``private``: which of a call's arrays are private


class Fold(NamedTuple):
    """A reduction or scan: it combines ``nelems`` elements of all members at ``src`` into ``dest`` on all members."""

    mode: int  # REDUCE, INSCAN or EXSCAN
    op: str
    dtype: Any
    dest: int
    src: int
    nelems: int


class Blocks(NamedTuple):
    """Blocks of elements that members exchange: block j of ``src`` goes to member j, in whose dest they stand in order."""

    dest: int
    src: int
    item: int  # the bytes of an element
    counts: Sequence[int]  # the elements that each member sends to each; those of alltoalls are equal
    skip: int = 0  # the elements of src from one block to the next; 0 sends the same block to all
    tst: int = 1  # the steps from one element to the next, in elements
    sst: int = 1

    def start(self, member: int) -> int:
        """Return where the block from ``member`` begins in dest, in elements."""
        return sum(self.counts[:member]) * self.tst

    def target_range(self) -> tuple[int, int]:
        """Return (address, bytes) of what dest is written from and to."""
        return self.dest, ((sum(self.counts) - 1) * self.tst + 1) * self.item

    def source_range(self, member: int) -> tuple[int, int]:
        """Return (address, bytes) of what ``member`` sends."""
        last = (len(self.counts) - 1) * self.skip
        return self.src, max(0, last + (self.counts[member] - 1) * self.sst + 1) * self.item
