"""wait_until and test: this PE looks at its own memory until peers have written it. Spec: OpenSHMEM 1.6, 9.10.

Waits release the GIL, let signal handlers run, yield the core where PEs share cores, and give up after
PYSHMEM_WAIT_TIMEOUT seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from pyshmem.runtime import _native
from pyshmem.runtime.arguments import describe, refuse_dtype, scalar, symmetric_array, word
from pyshmem.runtime.errors import ArgumentError, refuse, refuse_timeout
from pyshmem.runtime.heap import Heap, cpu
from pyshmem.runtime.job import job


class CMP(IntEnum):
    """The comparisons. The strings "==", "!=", ">", ">=", "<", "<=" are accepted as well."""

    EQ = 0
    NE = 1
    GT = 2
    GE = 3
    LT = 4
    LE = 5


_SIGNS = dict(zip(CMP, ("==", "!=", ">", ">=", "<", "<="), strict=True))
_COMPARISONS: dict[Any, int] = {**{cmp: cmp.value for cmp in CMP}, **{sign: cmp.value for cmp, sign in _SIGNS.items()}}
_TYPES = (torch.int32, torch.int64, torch.uint32, torch.uint64)


def _natives(operator: str) -> dict[Any, Any]:
    return {dtype: getattr(_native, f"{operator}_{str(dtype).removeprefix('torch.')}") for dtype in _TYPES}


_WAIT, _TEST, _ANY = _natives("wait"), _natives("test"), _natives("wait_any")
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio
_turn = 0  # where *_any and *_some begin to look


def wait_until(ivar: Any, cmp: CMP | str, value: int) -> None:
    """Wait until the comparison of the local element ``ivar`` with ``value`` is true.

    ivar: one symmetric int32, int64, uint32 or uint64 element, written by p, put, an AMO, a signal or a kernel of a peer.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL.
    """
    wait_word("wait_until", "ivar", ivar, cmp, value)


def wait_word(
    routine: str, argument: str, ivar: Any, cmp: CMP | str, value: Any, dtypes: tuple[torch.dtype, ...] = _TYPES
) -> int:
    """wait_until for any routine, on elements of ``dtypes``; the value seen is returned."""
    heap, address, dtype = word(routine, argument, ivar)
    code = comparison(routine, cmp)
    if dtype not in dtypes:
        refuse_dtype(routine, argument, dtype, dtypes)
    if type(value) is not int:
        value = scalar(routine, "value", value, dtype)
    try:
        return _wait(heap, address, dtype, code, value)
    except TimeoutError:
        seen = _value_at(heap.look(address, dtype.itemsize), dtype)
        sign = _SIGNS[CMP(code)]
        refuse_timeout(routine, argument, f"{seen} at heap offset {address - heap.base}", f"a value {sign} {value}")
    except OverflowError:
        return int(scalar(routine, "value", value, dtype))


def _wait(heap: Heap, address: int, dtype: Any, code: int, value: int) -> int:
    """Wait for one word; the value seen. Errors: TimeoutError, OverflowError for a value the type does not hold."""
    if heap is cpu:
        return int(_WAIT[dtype](address, code, value, job.timeout, job.spins))
    holds = _TEST[dtype]

    def satisfied(seen: int) -> int | None:
        return _value_at(seen, dtype) if holds(seen, code, value) else None

    return _watch(heap, address, dtype.itemsize, satisfied)


def _watch(heap: Heap, address: int, nbytes: int, satisfied: Callable[[int], int | None]) -> int:
    """Look at GPU memory again and again, until ``satisfied`` of where the bytes can be read gives a value."""
    deadline = time.monotonic() + (job.timeout or math.inf)
    while True:
        found = satisfied(heap.look(address, nbytes))
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError


def test(ivar: Any, cmp: CMP | str, value: int) -> bool:
    """Return whether the comparison of the local element ``ivar`` with ``value`` is true.

    ivar: one symmetric int32, int64, uint32 or uint64 element, written by p, put, an AMO, a signal or a kernel of a peer.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    Order: an acquire if the result is true: what the writer ordered before the word is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST.
    """
    heap, address, dtype = word("test", "ivar", ivar)
    native = _TEST.get(dtype) or refuse_dtype("test", "ivar", dtype, _TYPES)
    if type(value) is not int:
        value = scalar("test", "value", value, dtype)
    try:
        return bool(native(heap.look(address, dtype.itemsize), comparison("test", cmp), value))
    except OverflowError:
        return bool(scalar("test", "value", value, dtype))


class Many(NamedTuple):
    """The checked arguments of a call on many elements; ``keep`` holds the status array alive for its address."""

    routine: str
    heap: Heap
    address: int
    nelems: int
    dtype: Any
    code: int
    value: Any  # one for all, or an array of as many
    status: int
    keep: Any

    def look(self) -> int:
        return self.heap.look(self.address, self.nelems * self.dtype.itemsize) if self.nelems else 0

    def included(self) -> Sequence[int]:
        return range(self.nelems) if self.keep is None else np.flatnonzero(self.keep == 0).tolist()

    def wanted(self, i: int) -> int:
        return self.value if isinstance(self.value, int) else int(self.value[i])

    def native_value(self) -> Any:
        return self.value if isinstance(self.value, int) else (self.value.ctypes.data,)

    def refuse(self, i: int | None) -> NoReturn:
        """Word the time-out of element ``i``, or of all."""
        if i is None:
            what = "cmp_values" if isinstance(self.value, np.ndarray) else str(self.value)
            wants = f"a value {_SIGNS[CMP(self.code)]} {what} among {len(self.included())}"
            refuse_timeout(self.routine, "ivars", "none", wants)
        seen = _value_at(self.heap.look(self.address + i * self.dtype.itemsize, self.dtype.itemsize), self.dtype)
        refuse_timeout(self.routine, f"ivars[{i}]", str(seen), f"a value {_SIGNS[CMP(self.code)]} {self.wanted(i)}")


def wait_until_all(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> None:
    """Wait until the comparison with ``value`` has been true for every element of ``ivars``.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: at once for an empty set.
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL_ALL.
    """
    wait_all(check_many("wait_until_all", ivars, cmp, value, status))


def wait_until_any(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> int | None:
    """Wait until the comparison with ``value`` is true for some element of ``ivars``; return its index.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: the index; None for an empty set.
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL_ANY.
    """
    return wait_any(check_many("wait_until_any", ivars, cmp, value, status))


def wait_until_some(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> list[int]:
    """Wait until the comparison with ``value`` is true for at least one element of ``ivars``.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: the indices of all elements for which it is true, in order; [] for an empty set.
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL_SOME.
    """
    return wait_some(check_many("wait_until_some", ivars, cmp, value, status))


def test_all(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> bool:
    """Return whether the comparison with ``value`` is true for every element of ``ivars``.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: True for an empty set.
    Order: an acquire: what the writers ordered before the words that are true is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST_ALL.
    """
    return all_hold(check_many("test_all", ivars, cmp, value, status))


def test_any(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> int | None:
    """Return the index of an element of ``ivars`` for which the comparison with ``value`` is true.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: None if there is no such element.
    Order: an acquire: what the writers ordered before the words that are true is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST_ANY.
    """
    many = check_many("test_any", ivars, cmp, value, status)
    return any_holds(many, many.look())


def test_some(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> list[int]:
    """Return the indices of all elements of ``ivars`` for which the comparison with ``value`` is true, in order.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Order: an acquire: what the writers ordered before the words that are true is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST_SOME.
    """
    return satisfied(check_many("test_some", ivars, cmp, value, status))


def comparison(routine: str, cmp: Any) -> int:
    """The native code of ``cmp``. Errors: ArgumentError."""
    try:
        return _COMPARISONS[cmp]
    except (KeyError, TypeError):
        refuse(ArgumentError, routine, "cmp", repr(cmp), "one of shmem.CMP, or one of " + " ".join(_SIGNS.values()))


def check_many(routine: str, ivars: Any, cmp: Any, value: Any, status: Any) -> Many:
    """One value for all elements; wait_vector puts an array in its place."""
    operand = symmetric_array(routine, "ivars", ivars)
    if operand.dtype not in _WAIT:
        refuse_dtype(routine, "ivars", operand.dtype, _TYPES)
    keep, address = None, 0
    if status is not None:
        keep = np.ascontiguousarray(np.asarray(status) != 0, dtype=np.int32)
        if keep.size != operand.nelems:
            wants = f"one for each of the {operand.nelems} of ivars"
            refuse(ArgumentError, routine, "status", f"{keep.size} elements", wants)
        address = describe(routine, "status", keep).address
    exact = scalar(routine, "value", value, operand.dtype)
    place = operand.heap, operand.address, operand.nelems, operand.dtype
    return Many(routine, *place, comparison(routine, cmp), exact, address, keep)


def wait_all(many: Many) -> None:
    for i in many.included():
        try:
            _wait(many.heap, many.address + i * many.dtype.itemsize, many.dtype, many.code, many.wanted(i))
        except TimeoutError:
            many.refuse(i)


def wait_any(many: Many) -> int | None:
    if not many.included():
        return None
    try:
        if many.heap is not cpu:
            nbytes = many.nelems * many.dtype.itemsize
            return _watch(many.heap, many.address, nbytes, lambda seen: any_holds(many, seen))
        place = many.address, many.nelems, many.code, many.native_value(), many.status, _next_first(many.nelems)
        return int(_ANY[many.dtype](*place, job.timeout, job.spins))
    except TimeoutError:
        many.refuse(None)


def wait_some(many: Many) -> list[int]:
    first = wait_any(many)
    return [] if first is None else sorted({first, *satisfied(many)})


def all_hold(many: Many) -> bool:
    return len(satisfied(many)) == len(many.included())


def any_holds(many: Many, seen: int) -> int | None:
    """The index of an element that compares so, in what was read at ``seen``."""
    place = seen, many.nelems, many.code, many.native_value(), many.status, _next_first(many.nelems)
    found = _ANY[many.dtype](*place)
    return None if found < 0 else int(found)


def satisfied(many: Many) -> list[int]:
    step, native, seen = many.dtype.itemsize, _TEST[many.dtype], many.look()
    return [i for i in many.included() if native(seen + i * step, many.code, many.wanted(i))]


def _next_first(count: int) -> int:
    """A Weyl sequence, so that no index starves: a counter would, where a program's loop makes ``count`` such calls."""
    global _turn
    _turn = (_turn + _GOLDEN) & (1 << 64) - 1
    return _turn * count >> 64


def _value_at(address: int, dtype: Any) -> int:
    return int(getattr(_native, f"fetch_{str(dtype).removeprefix('torch.')}")(address))
