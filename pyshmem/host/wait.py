"""wait_until and test: this PE polls its own memory, which peers write. Spec: OpenSHMEM 1.6, 9.10.

pyshmem.runtime.words waits for words in CPU memory, pyshmem.transport for words in GPU memory.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from pyshmem.runtime import comparisons, words
from pyshmem.runtime.arguments import (
    WHOLE,
    Array,
    describe,
    name_of,
    refuse_dtype,
    require_one_dtype,
    scalar,
    symmetric_array,
    word,
)
from pyshmem.runtime.comparisons import SIGNS, Sign
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.host_timeouts import refuse_timeout
from pyshmem.runtime.job import job
from pyshmem.runtime.words import LOAD, TEST, TYPES, Words
from pyshmem.transport.routes import word_on

__all__ = [
    "CMP", "test", "test_all", "test_all_vector", "test_any", "test_any_vector", "test_some", "test_some_vector",
    "wait_until", "wait_until_all", "wait_until_all_vector", "wait_until_any", "wait_until_any_vector",
    "wait_until_some", "wait_until_some_vector",
]  # fmt: skip


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
    words.wait_all(_checked("wait_until_all", ivars, cmp, value, status))


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
    return words.wait_any(_checked("wait_until_any", ivars, cmp, value, status))


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
    return words.wait_some(_checked("wait_until_some", ivars, cmp, value, status))


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
    return words.all_hold(_checked("test_all", ivars, cmp, value, status))


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
    checked = _checked("test_any", ivars, cmp, value, status)
    return words.any_holds(checked, checked.look())


def test_some(ivars: Array, cmp: CMP | Sign, value: int, status: Any = None) -> list[int]:
    """Return the indices of all elements of ``ivars`` for which the comparison with ``value`` is true, in order.

    ivars: a symmetric array of int32, int64, uint32 or uint64, written by peers.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    status: one int per element of ivars, non-zero to ignore the element; None means no element is ignored.
    Order: an acquire: what the writers ordered before the words that are true is visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_TEST_SOME.
    """
    return words.satisfied(_checked("test_some", ivars, cmp, value, status))


def comparison(routine: str, cmp: Any) -> int:
    """The native code of ``cmp``. Errors: ArgumentError."""
    try:
        return _COMPARISONS[cmp]
    except (KeyError, TypeError):
        refuse(ArgumentError, routine, "cmp", repr(cmp), "one of shmem.CMP, or one of " + " ".join(SIGNS))


def _checked(routine: str, ivars: Any, cmp: Any, value: Any, status: Any) -> Words:
    """The checked arguments of a call on many elements, with one value for all; the vector forms replace it by an array."""
    operand = symmetric_array(routine, "ivars", ivars)
    if operand.dtype not in TEST:
        refuse_dtype(routine, "ivars", operand.dtype, TYPES)
    keep, address = None, 0
    if status is not None:
        keep = np.ascontiguousarray(np.asarray(status) != 0, dtype=np.int32)
        if keep.size != operand.nelems:
            wants = f"one for each of the {operand.nelems} of ivars"
            refuse(ArgumentError, routine, "status", f"{keep.size} elements", wants)
        address = describe(routine, "status", keep).address
    exact = scalar(routine, "value", value, operand.dtype)
    place = operand.heap.near, operand.heap.base, operand.address, operand.nelems, operand.dtype
    return Words(routine, *place, comparison(routine, cmp), exact, address, keep)


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


def _vector(plain: str, finish: Callable[[Words], Any]) -> Callable[..., Any]:
    name = plain + "_vector"

    def call(ivars: Array, cmp: Any, cmp_values: Any, status: Any = None) -> Any:
        values = _values(name, ivars, cmp_values)
        return finish(_checked(name, ivars, cmp, 0, status)._replace(value=values))

    call.__name__ = call.__qualname__ = name
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


def _values(routine: str, ivars: Any, cmp_values: Any) -> np.ndarray:
    """A private copy of cmp_values, which may be a list and may change during the wait."""
    operand = symmetric_array(routine, "ivars", ivars)
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


wait_until_all_vector = _vector("wait_until_all", words.wait_all)
wait_until_any_vector = _vector("wait_until_any", words.wait_any)
wait_until_some_vector = _vector("wait_until_some", words.wait_some)
test_all_vector = _vector("test_all", words.all_hold)
test_any_vector = _vector("test_any", lambda checked: words.any_holds(checked, checked.look()))
test_some_vector = _vector("test_some", words.satisfied)
