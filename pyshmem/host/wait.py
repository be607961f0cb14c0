"""wait_until and test: this PE polls its own memory, which peers write. Spec: OpenSHMEM 1.6, 9.10.

pyshmem.memory.words waits for words in CPU memory, pyshmem.transport for words in GPU memory.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from pyshmem.base import comparisons
from pyshmem.base.comparisons import SIGNS, Sign
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.memory import words
from pyshmem.memory.arguments import (
    WHOLE,
    Array,
    Operand,
    describe,
    name_of,
    refuse_dtype,
    require_aligned,
    require_one_dtype,
    scalar,
    symmetric_array,
    word,
)
from pyshmem.memory.heap import views
from pyshmem.memory.words import LOAD, TEST, TYPES, Words
from pyshmem.native._native import several
from pyshmem.transport.near_or_far import word_on

__all__ = [
    "CMP", "test", "test_all", "test_all_vector", "test_any", "test_any_vector", "test_some", "test_some_vector",
    "wait_until", "wait_until_all", "wait_until_all_vector", "wait_until_any", "wait_until_any_vector",
    "wait_until_some", "wait_until_some_vector",
]  # fmt: skip

_ALL, _ANY, _SOME, _EACH = 0, 1, 2, 4  # those of python/several.c


class CMP(IntEnum):
    """The comparisons. The strings "==", "!=", ">", ">=", "<", "<=" are accepted as well."""

    EQ = comparisons.EQ
    NE = comparisons.NE
    GT = comparisons.GT
    GE = comparisons.GE
    LT = comparisons.LT
    LE = comparisons.LE


_COMPARISONS: dict[Any, int] = {**{cmp: cmp.value for cmp in CMP}, **{sign: code for code, sign in enumerate(SIGNS)}}


def wait_until(ivar: Array, cmp: CMP | Sign, value: int) -> None:
    """Wait until the comparison of the local element ``ivar`` with ``value`` is true.

    ivar: one symmetric int32, int64, uint32 or uint64 element, written by p, put, an AMO, a signal or a kernel of a peer.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL.
    """
    wait_word("wait_until", "ivar", ivar, cmp, value)


def wait_word(
    routine: str, argument: str, ivar: Array, cmp: CMP | Sign, value: Any, dtypes: tuple[torch.dtype, ...] = TYPES
) -> int:
    """wait_until for any routine, on elements of ``dtypes``; the value seen is returned."""
    heap, address, dtype = word(routine, argument, ivar)
    code = comparison(routine, cmp)
    if dtype not in dtypes:
        refuse_dtype(routine, argument, dtype, dtypes)
    if type(value) is not int:
        value = int(value) if type(value) in WHOLE else scalar(routine, "value", value, dtype)
    try:
        return int(heap.near.wait_word(address, dtype, code, value))
    except TimeoutError:
        seen = LOAD[dtype](heap.near.look(address, dtype.itemsize))
        sign = SIGNS[code]
        refuse_timeout(routine, argument, f"{seen} at {heap.place(address - heap.base)}", f"a value {sign} {value}")
    except OverflowError:
        return int(scalar(routine, "value", value, dtype))


def test(ivar: Array, cmp: CMP | Sign, value: int) -> bool:
    """Return whether the comparison of the local element ``ivar`` with ``value`` is true.

    ivar: one symmetric int32, int64, uint32 or uint64 element, written by p, put, an AMO, a signal or a kernel of a peer.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    Order: an acquire if the result is true: what the writer ordered before the word is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST.
    """
    here, place, dtype = word_on("test", "ivar", ivar, job.my_pe)
    native = TEST.get(dtype) or refuse_dtype("test", "ivar", dtype, TYPES)
    if type(value) is not int:
        value = int(value) if type(value) in WHOLE else scalar("test", "value", value, dtype)
    try:
        return bool(native(here.look(place, dtype.itemsize), comparison("test", cmp), value))
    except OverflowError:
        return bool(scalar("test", "value", value, dtype))


def wait_until_all(ivars: Array, cmp: CMP | Sign, value: int, status: Any = None) -> None:
    """Wait until the comparison with ``value`` has been true for every element of ``ivars``.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: at once for an empty set.
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL_ALL.
    """
    _wait("wait_until_all", _ALL, ivars, cmp, value, status)


def wait_until_any(ivars: Array, cmp: CMP | Sign, value: int, status: Any = None) -> int | None:
    """Wait until the comparison with ``value`` is true for some element of ``ivars``; return its index.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: the index; None for an empty set.
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL_ANY.
    """
    found: int | None = _wait("wait_until_any", _ANY, ivars, cmp, value, status)
    return found


def wait_until_some(ivars: Array, cmp: CMP | Sign, value: int, status: Any = None) -> list[int]:
    """Wait until the comparison with ``value`` is true for at least one element of ``ivars``.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: the indices of all elements for which it is true, in order; [] for an empty set.
    Order: an acquire: what the writer ordered before the word is visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL_SOME.
    """
    found: list[int] = _wait("wait_until_some", _SOME, ivars, cmp, value, status)
    return found


def test_all(ivars: Array, cmp: CMP | Sign, value: int, status: Any = None) -> bool:
    """Return whether the comparison with ``value`` is true for every element of ``ivars``.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: True for an empty set.
    Order: an acquire: what the writers ordered before the words that are true is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST_ALL.
    """
    found: bool = _test("test_all", _ALL, ivars, cmp, value, status)
    return found


def test_any(ivars: Array, cmp: CMP | Sign, value: int, status: Any = None) -> int | None:
    """Return the index of an element of ``ivars`` for which the comparison with ``value`` is true.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: None if there is no such element.
    Order: an acquire: what the writers ordered before the words that are true is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST_ANY.
    """
    found: int | None = _test("test_any", _ANY, ivars, cmp, value, status)
    return found


def test_some(ivars: Array, cmp: CMP | Sign, value: int, status: Any = None) -> list[int]:
    """Return the indices of all elements of ``ivars`` for which the comparison with ``value`` is true, in order.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Order: an acquire: what the writers ordered before the words that are true is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST_SOME.
    """
    found: list[int] = _test("test_some", _SOME, ivars, cmp, value, status)
    return found


def comparison(routine: str, cmp: Any) -> int:
    """The native code of ``cmp``. Errors: ArgumentError."""
    try:
        return _COMPARISONS[cmp]
    except (KeyError, TypeError):
        refuse(ArgumentError, routine, "cmp", repr(cmp), "one of shmem.CMP, or one of " + " ".join(SIGNS))


def _wait(routine: str, which: int, ivars: Any, cmp: Any, value: Any, status: Any) -> Any:
    """Wait for several words. value: one for all, or, if ``which`` has _EACH, one for each."""
    try:
        found = several(views, _COMPARISONS, which, ivars, cmp, value, status, job.timeout, job.spins)
    except TimeoutError as timeout:
        place = timeout.args[0]
        _checked(routine, which, ivars, cmp, value, status).refuse(None if place < 0 else place)
    if found is NotImplemented:
        found = _WAITS[which & ~_EACH](_checked(routine, which, ivars, cmp, value, status))
    return found


def _test(routine: str, which: int, ivars: Any, cmp: Any, value: Any, status: Any) -> Any:
    """Test several words. value: as of _wait."""
    found = several(views, _COMPARISONS, which, ivars, cmp, value, status)
    if found is NotImplemented:
        found = _TESTS[which & ~_EACH](_checked(routine, which, ivars, cmp, value, status))
    return found


_WAITS = words.wait_all, words.wait_any, words.wait_some
_TESTS = words.all_hold, lambda checked: words.any_holds(checked, checked.look()), words.satisfied


def _checked(routine: str, which: int, ivars: Any, cmp: Any, value: Any, status: Any) -> Words:
    """The checked arguments of a call on several words. Errors: those of the call."""
    operand = symmetric_array(routine, "ivars", ivars)
    require_aligned(routine, "ivars", operand)
    values = _values(routine, operand, value) if which & _EACH else None
    if operand.dtype not in TEST:
        refuse_dtype(routine, "ivars", operand.dtype, TYPES)
    keep, address = None, 0
    if status is not None:
        keep = np.ascontiguousarray(np.asarray(status) != 0, dtype=np.int32)
        if keep.size != operand.nelems:
            wants = f"one for each of the {operand.nelems} of ivars"
            refuse(ArgumentError, routine, "status", f"{keep.size} elements", wants)
        address = describe(routine, "status", keep).address
    exact = scalar(routine, "value", value, operand.dtype) if values is None else values
    place = operand.heap.near, operand.heap.base, operand.address, operand.nelems, operand.dtype
    return Words(routine, *place, comparison(routine, cmp), exact, address, keep, refuse_timeout)


def _values(routine: str, operand: Operand, cmp_values: Any) -> np.ndarray:
    """A private copy of cmp_values, which may be a list and may change during the wait."""
    if isinstance(cmp_values, (list, tuple)):
        exact = [scalar(routine, "cmp_values", value, operand.dtype) for value in cmp_values]
        values = np.array(exact, name_of(operand.dtype))
    else:
        given = describe(routine, "cmp_values", cmp_values)
        require_one_dtype(routine, ("ivars", "cmp_values"), operand.dtype, given.dtype)
        plain = cmp_values if isinstance(cmp_values, np.ndarray) else torch.as_tensor(cmp_values).cpu().numpy()
        values = plain.reshape(-1).copy()
    if values.size != operand.nelems:
        wants = f"one for each of the {operand.nelems} of ivars"
        refuse(ArgumentError, routine, "cmp_values", f"{values.size} elements", wants)
    return values


# ---- the vector forms: one value per element ----

_DOC = """{summary}

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    cmp_values: one value per element of ivars, as an array of the dtype of ivars or a list of ints.
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Returns: {returns}
    Order: an acquire: what the writers ordered before the words is visible on return.
    Errors: {timeout}NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_{name}.
    """
_RETURNS = {
    "all": ("the comparison of every element of ``ivars`` with its value", "the answer; True for an empty set."),
    "any": ("the comparison of some element of ``ivars`` with its value", "its index; None for an empty set."),
    "some": ("the comparison of at least one element of ``ivars`` with its value", "all such indices, in order."),
}


def _vector(plain: str, form: Callable[..., Any], which: int) -> Callable[..., Any]:
    name, which = plain + "_vector", which | _EACH

    def call(ivars: Array, cmp: Any, cmp_values: Any, status: Any = None) -> Any:
        return form(name, which, ivars, cmp, cmp_values, status)

    call.__name__ = call.__qualname__ = name
    call.__code__ = call.__code__.replace(co_name=name)  # for what says where a PE is
    waits, (what, returns) = plain.startswith("wait"), _RETURNS[plain.rsplit("_", 1)[1]]
    if plain == "wait_until_all":
        returns = "None, at once for an empty set."
    elif plain == "test_any":
        returns = "its index; None if there is no such element."
    call.__doc__ = _DOC.format(
        summary=f"Wait until {what} is true." if waits else f"Test whether {what} is true.",
        returns=returns,
        timeout="WaitTimeoutError, " if waits else "",
        name=name.upper(),
    )
    return call


wait_until_all_vector = _vector("wait_until_all", _wait, _ALL)
wait_until_any_vector = _vector("wait_until_any", _wait, _ANY)
wait_until_some_vector = _vector("wait_until_some", _wait, _SOME)
test_all_vector = _vector("test_all", _test, _ALL)
test_any_vector = _vector("test_any", _test, _ANY)
test_some_vector = _vector("test_some", _test, _SOME)
