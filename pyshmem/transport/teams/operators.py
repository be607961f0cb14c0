"""The operators of reductions and scans, and the element types that each is defined for. Spec: OpenSHMEM 1.6, 9.9."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from pyshmem.base import layout
from pyshmem.diagnosis.mismatched_calls import CODES, FIRST_FOLD, Call
from pyshmem.memory.heap import Heap
from pyshmem.native import _native

Op = Literal["sum", "prod", "min", "max", "and", "or", "xor"]
HALF = (torch.float16, torch.bfloat16)
# the native loops: the dtypes of each operator, both by number
_NATIVE = {op: tuple(getattr(torch, name) for name in names) for op, names in _native.REDUCTIONS.items()}
LOOPS = {dtype: loop for loop, dtype in enumerate(_NATIVE["sum"])}


class Operator(NamedTuple):
    code: int  # its number in base/combine.h
    torch: Callable[..., Any]
    numpy: Callable[..., Any]  # for dtypes that torch lacks, which have no native loop
    dtypes: tuple[Any, ...]


_FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {  # and what only NumPy has
    "sum": (torch.add, np.add, ("longdouble", "clongdouble")),
    "prod": (torch.mul, np.multiply, ("longdouble", "clongdouble")),
    "min": (torch.minimum, np.minimum, ("longdouble",)),
    "max": (torch.maximum, np.maximum, ("longdouble",)),
    "and": (torch.bitwise_and, np.bitwise_and, ()),
    "or": (torch.bitwise_or, np.bitwise_or, ()),
    "xor": (torch.bitwise_xor, np.bitwise_xor, ()),
}
OPERATORS = {
    op: Operator(code, by_torch, by_numpy, (*_NATIVE[op], *map(np.dtype, others)))
    for code, (op, (by_torch, by_numpy, others)) in enumerate((op, _FUNCTIONS[op]) for op in _NATIVE)
}
REDUCE, INSCAN, EXSCAN = layout.numbers("REDUCE", "INSCAN", "EXSCAN")  # how a Fold combines
# what remains to be done of a collective, see team/team.h
DONE, UNTOUCHED, STAGED, REFUSED, DIFFERENT, UNLIKE, BROKEN = layout.numbers(
    "DONE", "UNTOUCHED", "STAGED", "REFUSED", "DIFFERENT", "UNLIKE", "BROKEN"
)
# bits of ``private``: which of the arrays of a call are private
TARGET, SOURCE = layout.numbers("PRIVATE_TARGET", "PRIVATE_SOURCE")


class Fold(NamedTuple):
    """A reduction or scan: it combines ``nelems`` elements of all members at ``src`` into ``dest`` on all members."""

    mode: int  # REDUCE, INSCAN or EXSCAN
    op: str
    dtype: Any
    dest: int
    src: int
    nelems: int

    def call(self, heap: Heap) -> Call:
        """Return what must be the same on all members."""
        code = FIRST_FOLD + self.mode * len(OPERATORS) + OPERATORS[self.op].code
        return Call(code, self.dtype, self.nelems, heap.device)


class Blocks(NamedTuple):
    """Blocks of elements that members exchange: block j of ``src`` goes to member j, in whose dest they stand in order."""

    dest: int
    src: int
    dtype: Any
    counts: Sequence[int]  # the elements that each member sends to each; those of alltoalls are equal
    skip: int = 0  # the elements of src from one block to the next; 0 sends the same block to all
    tst: int = 1  # the steps from one element to the next, in elements
    sst: int = 1

    @property
    def item(self) -> int:
        """The bytes of an element."""
        return int(self.dtype.itemsize)

    def call(self, routine: str, heap: Heap) -> Call:
        """Return what must be the same on all members."""
        stride = self.tst if self.tst > 1 else 0
        return Call(CODES[routine], self.dtype, self.counts[0], heap.device, stride)

    def start(self, member: int) -> int:
        """Return where the block from ``member`` begins in dest, in elements."""
        return sum(self.counts[:member]) * self.tst

    def target_range(self) -> tuple[int, int]:
        """Return (address, bytes) of what dest is written from and to."""
        return self.dest, max(0, (sum(self.counts) - 1) * self.tst + 1) * self.item

    def source_range(self, member: int) -> tuple[int, int]:
        """Return (address, bytes) of what ``member`` sends."""
        last = (len(self.counts) - 1) * self.skip
        return self.src, max(0, last + (self.counts[member] - 1) * self.sst + 1) * self.item


class Uneven(NamedTuple):
    """Blocks of any sizes: ``counts[i][j]`` elements of member i, from ``starts[i][j]`` of its source on, go to member j.

    sources: where they begin, as addresses of this PE. One that is private is known only here.
    """

    dest: int
    sources: Sequence[int]
    item: int  # the bytes of an element
    counts: Sequence[Sequence[int]]
    starts: Sequence[Sequence[int]]

    def incoming(self, me: int) -> list[tuple[int, int, int]]:
        """Return (member, address in dest, elements) of each block for ``me``, its own first."""
        sizes = [sent[me] for sent in self.counts]
        places = [self.dest + sum(sizes[:i]) * self.item for i in range(len(sizes))]
        order = [(me + k) % len(sizes) for k in range(len(sizes))]
        return [(i, places[i], sizes[i]) for i in order if sizes[i]]
