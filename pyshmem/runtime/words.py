"""Waits and tests on words of this PE: the words of one call, and how the processor waits for those in CPU memory.

Waits release the GIL, let signal handlers run, yield the core where PEs share cores, and give up after
PYSHMEM_WAIT_TIMEOUT seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from pyshmem.runtime import _native
from pyshmem.runtime.comparisons import SIGNS
from pyshmem.runtime.errors import refuse_timeout
from pyshmem.runtime.job import job

TYPES = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio
_turn = 0  # where *_any and *_some begin to look


def natives(operator: str, dtypes: Sequence[torch.dtype]) -> dict[Any, Any]:
    """The native functions of an operator, by element type."""
    return {dtype: getattr(_native, f"{operator}_{str(dtype).removeprefix('torch.')}") for dtype in dtypes}


TEST, LOAD = natives("test", TYPES), natives("fetch", (*TYPES, torch.float32, torch.float64))
_WAIT, _ANY = natives("wait", TYPES), natives("wait_any", TYPES)


class OnCpu:
    """How words in CPU memory are read and waited for. GPU memory has functions of the same names."""

    def look(self, address: int, nbytes: int) -> int:
        """Where in CPU memory these bytes of this PE can be read, as they are now."""
        return address

    def wait_word(self, address: int, dtype: Any, code: int, value: int) -> int:
        """Wait until a word compares so; the value seen. Errors: TimeoutError, OverflowError for a value it cannot hold."""
        return int(_WAIT[dtype](address, code, value, job.timeout, job.spins))

    def wait_any(self, words: Words) -> int:
        """Wait until one of the words compares so; its index. Errors: TimeoutError."""
        return int(_ANY[words.dtype](*words.native(words.address), job.timeout, job.spins))


on_cpu = OnCpu()


class Words(NamedTuple):
    """The checked arguments of a call on many words; ``keep`` holds the status array alive for its address."""

    routine: str
    here: Any  # an OnCpu, or what stands for one
    base: int  # of the heap
    address: int
    nelems: int
    dtype: Any
    code: int  # of the comparison
    value: Any  # one for all, or an array of as many
    status: int
    keep: Any

    def look(self) -> int:
        return int(self.here.look(self.address, self.nelems * self.dtype.itemsize)) if self.nelems else 0

    def included(self) -> Sequence[int]:
        return range(self.nelems) if self.keep is None else np.flatnonzero(self.keep == 0).tolist()

    def wanted(self, i: int) -> int:
        return self.value if isinstance(self.value, int) else int(self.value[i])

    def native(self, seen: int) -> tuple[Any, ...]:
        """The first arguments of the native wait_any, of words that can be read at ``seen``."""
        value = self.value if isinstance(self.value, int) else (self.value.ctypes.data,)
        return seen, self.nelems, self.code, value, self.status, _next_first(self.nelems)

    def refuse(self, i: int | None) -> NoReturn:
        """Word the time-out of element ``i``, or of all."""
        sign = SIGNS[self.code]
        if i is None:
            what = "cmp_values" if isinstance(self.value, np.ndarray) else str(self.value)
            refuse_timeout(self.routine, "ivars", "none", f"a value {sign} {what} among {len(self.included())}")
        seen = LOAD[self.dtype](self.here.look(self.address + i * self.dtype.itemsize, self.dtype.itemsize))
        refuse_timeout(self.routine, f"ivars[{i}]", str(seen), f"a value {sign} {self.wanted(i)}")


def wait_all(words: Words) -> None:
    """Wait until each word has compared so. Errors: WaitTimeoutError."""
    for i in words.included():
        try:
            words.here.wait_word(words.address + i * words.dtype.itemsize, words.dtype, words.code, words.wanted(i))
        except TimeoutError:
            words.refuse(i)


def wait_any(words: Words) -> int | None:
    """Wait until a word compares so; its index, None where none is included. Errors: WaitTimeoutError."""
    if not words.included():
        return None
    try:
        return int(words.here.wait_any(words))
    except TimeoutError:
        words.refuse(None)


def wait_some(words: Words) -> list[int]:
    """Wait until a word compares so; the indices of all that do. Errors: WaitTimeoutError."""
    first = wait_any(words)
    return [] if first is None else sorted({first, *satisfied(words)})


def all_hold(words: Words) -> bool:
    return len(satisfied(words)) == len(words.included())


def any_holds(words: Words, seen: int) -> int | None:
    """The index of an element that compares so, in what was read at ``seen``."""
    found = _ANY[words.dtype](*words.native(seen))
    return None if found < 0 else int(found)


def satisfied(words: Words) -> list[int]:
    """The indices of all words that compare so now."""
    step, native, seen = words.dtype.itemsize, TEST[words.dtype], words.look()
    return [i for i in words.included() if native(seen + i * step, words.code, words.wanted(i))]


def _next_first(count: int) -> int:
    """A Weyl sequence, so that no index starves: a counter would, where a program's loop makes ``count`` such calls."""
    global _turn
    _turn = (_turn + _GOLDEN) & (1 << 64) - 1
    return _turn * count >> 64
