"""Waits and tests on words in the memory of this PE.

Waits release the GIL, let signal handlers run, yield the core if PEs share cores, and time out after
PYSHMEM_WAIT_TIMEOUT seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from pyshmem.base.comparisons import SIGNS
from pyshmem.base.job import job
from pyshmem.native import _native

# the dtypes of each atomic operator: the table of base/word.h
ATOMICS = {operator: tuple(getattr(torch, name) for name in names) for operator, names in _native.ATOMICS.items()}
TYPES = ATOMICS["and"]  # of waits: those of the integers


def native(call: str, dtype: torch.dtype) -> Callable[..., Any]:
    """Return the native function of a call for elements of ``dtype``."""
    function: Callable[..., Any] = getattr(_native, f"{call}_{str(dtype).removeprefix('torch.')}")
    return function


LOAD: dict[Any, Any] = {dtype: native("fetch", dtype) for dtype in ATOMICS["fetch"]}
TEST, _WAIT, _ANY = ({dtype: native(call, dtype) for dtype in TYPES} for call in ("test", "wait", "wait_any"))


class OnCpu:
    """Reads of and waits on words in CPU memory. The route of GPU memory has methods of the same names."""

    def look(self, address: int, nbytes: int) -> int:
        """Return an address in CPU memory at which the present values of these bytes can be read."""
        return address

    def wait_word(self, address: int, dtype: Any, code: int, value: int) -> int:
        """Wait until the comparison of a word holds, and return the value seen.

        Errors: TimeoutError; OverflowError if the type cannot hold ``value``.
        """
        return int(_WAIT[dtype](address, code, value, job.timeout, job.spins))

    def wait_any(self, words: Words) -> int:
        """Wait until the comparison of one of the words holds, and return its index. Errors: TimeoutError."""
        return int(_ANY[words.dtype](*words.native(words.address), job.timeout, job.spins))


on_cpu = OnCpu()


class Words(NamedTuple):
    """The checked arguments of a call on several words."""

    routine: str
    here: Any  # an OnCpu, or a route with the same methods
    base: int  # the address of the heap
    address: int
    nelems: int
    dtype: Any
    code: int  # the number of the comparison
    value: Any  # one value for all words, or an array with a value for each
    status: int  # the address of the status array, or 0
    keep: Any  # the status array, which must stay alive
    time_out: Callable[..., NoReturn]  # raises WaitTimeoutError: refuse_timeout of pyshmem.diagnosis

    def look(self) -> int:
        return int(self.here.look(self.address, self.nelems * self.dtype.itemsize)) if self.nelems else 0

    def included(self) -> Sequence[int]:
        return range(self.nelems) if self.keep is None else np.flatnonzero(self.keep == 0).tolist()

    def wanted(self, i: int) -> int:
        return self.value if isinstance(self.value, int) else int(self.value[i])

    def native(self, seen: int) -> tuple[Any, ...]:
        """Return the first arguments of the native wait_any for words that can be read at ``seen``."""
        value = self.value if isinstance(self.value, int) else (self.value.ctypes.data,)
        return seen, self.nelems, self.code, value, self.status

    def refuse(self, i: int | None) -> NoReturn:
        """Report that the wait for element ``i``, or for any element if None, timed out. Errors: WaitTimeoutError."""
        sign = SIGNS[self.code]
        if i is None:
            what = "cmp_values" if isinstance(self.value, np.ndarray) else str(self.value)
            self.time_out(self.routine, "ivars", "none", f"a value {sign} {what} among {len(self.included())}")
        seen = LOAD[self.dtype](self.here.look(self.address + i * self.dtype.itemsize, self.dtype.itemsize))
        self.time_out(self.routine, f"ivars[{i}]", str(seen), f"a value {sign} {self.wanted(i)}")


def wait_all(words: Words) -> None:
    """Wait until the comparison of each word has held. Errors: WaitTimeoutError."""
    for i in words.included():
        try:
            words.here.wait_word(words.address + i * words.dtype.itemsize, words.dtype, words.code, words.wanted(i))
        except TimeoutError:
            words.refuse(i)


def wait_any(words: Words) -> int | None:
    """Wait until the comparison of a word holds, and return its index; None if no word is included.

    Errors: WaitTimeoutError.
    """
    if not words.included():
        return None
    try:
        return int(words.here.wait_any(words))
    except TimeoutError:
        words.refuse(None)


def wait_some(words: Words) -> list[int]:
    """Wait until the comparison of a word holds, and return the indices of all such words. Errors: WaitTimeoutError."""
    first = wait_any(words)
    return [] if first is None else sorted({first, *satisfied(words)})


def all_hold(words: Words) -> bool:
    return len(satisfied(words)) == len(words.included())


def any_holds(words: Words, seen: int) -> int | None:
    """Return the index of an element at ``seen`` for which the comparison holds, or None."""
    found = _ANY[words.dtype](*words.native(seen))
    return None if found < 0 else int(found)


def satisfied(words: Words) -> list[int]:
    """Return the indices of all words for which the comparison holds now."""
    step, native, seen = words.dtype.itemsize, TEST[words.dtype], words.look()
    return [i for i in words.included() if native(seen + i * step, words.code, words.wanted(i))]
