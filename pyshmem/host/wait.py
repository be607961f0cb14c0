"""wait_until and test: this PE looks at its own memory until peers have written it. Spec: OpenSHMEM 1.6, 9.10.

pyshmem.runtime.words waits for words in CPU memory, pyshmem.transport for words in GPU memory.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from pyshmem.runtime import words
from pyshmem.runtime.arguments import describe, name_of, refuse_dtype, require_one_dtype, scalar, symmetric_array, word
from pyshmem.runtime.errors import ArgumentError, refuse, refuse_timeout
from pyshmem.runtime.job import job
from pyshmem.runtime.words import LOAD, TEST, TYPES, Words
from pyshmem.transport.routes import word_on


class CMP(IntEnum):
    """The comparisons; the text forms "==", "!=", ">", ">=", "<", "<=" mean the same."""

    EQ = 0
    NE = 1
    GT = 2
    GE = 3
    LT = 4
    LE = 5


_SIGNS = dict(zip(CMP, ("==", "!=", ">", ">=", "<", "<="), strict=True))
_COMPARISONS: dict[Any, int] = {**{cmp: cmp.value for cmp in CMP}, **{sign: cmp.value for cmp, sign in _SIGNS.items()}}


def wait_until(ivar: Any, cmp: CMP | str, value: int) -> None:
    """Wait until the element of ``ivar`` here compares so with ``value``.

    ivar: one symmetric int32, int64, uint32 or uint64, written by p, put, an AMO, a signal, or a kernel of a peer.
    cmp: of CMP, or "==", "!=", ">", ">=", "<", "<=".
    Order: an acquire: what its writer ordered before the word is readable after.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_WAIT_UNTIL.
    """
    wait_word("wait_until", "ivar", ivar, cmp, value)


def wait_word(
    routine: str, argument: str, ivar: Any, cmp: CMP | str, value: Any, dtypes: tuple[torch.dtype, ...] = TYPES
) -> int:
    """wait_until for any routine, on elements of ``dtypes``; the value seen is returned."""
    heap, address, dtype = word(routine, argument, ivar)
    code = comparison(routine, cmp)
    if dtype not in dtypes:
        refuse_dtype(routine, argument, dtype, dtypes)
    if type(value) is not int:
        value = scalar(routine, "value", value, dtype)
    try:
        return int(heap.direct.wait_word(address, dtype, code, value))
    except TimeoutError:
        seen = LOAD[dtype](heap.direct.look(address, dtype.itemsize))
        sign = _SIGNS[CMP(code)]
        refuse_timeout(routine, argument, f"{seen} at heap offset {address - heap.base}", f"a value {sign} {value}")
    except OverflowError:
        return int(scalar(routine, "value", value, dtype))


def test(ivar: Any, cmp: CMP | str, value: int) -> bool:
    """Whether the element of ``ivar`` here compares so with ``value``. All else: wait_until. Spec: 9.10 SHMEM_TEST."""
    here, place, dtype = word_on("test", "ivar", ivar, job.my_pe)
    native = TEST.get(dtype) or refuse_dtype("test", "ivar", dtype, TYPES)
    if type(value) is not int:
        value = scalar("test", "value", value, dtype)
    try:
        return bool(native(here.look(place, dtype.itemsize), comparison("test", cmp), value))
    except OverflowError:
        return bool(scalar("test", "value", value, dtype))


def wait_until_all(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> None:
    """Wait until every element of ``ivars`` has compared so with ``value``.

    ivars: a symmetric array of wait_until's types.  status: one int for each element, not 0 leaves it out; None: all in.
    cmp: wait_until's.  An empty set returns at once.  Order and errors: wait_until's.  Spec: 9.10 SHMEM_WAIT_UNTIL_ALL.
    """
    words.wait_all(_checked("wait_until_all", ivars, cmp, value, status))


def wait_until_any(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> int | None:
    """Wait until some element of ``ivars`` compares so with ``value``; its index is returned, None for an empty set.

    Arguments, order and errors: wait_until_all.  Spec: 9.10 SHMEM_WAIT_UNTIL_ANY.
    """
    return words.wait_any(_checked("wait_until_any", ivars, cmp, value, status))


def wait_until_some(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> list[int]:
    """Wait until at least one element of ``ivars`` compares so; the indices of all that do, in order. [] for an empty set.

    Arguments, order and errors: wait_until_all.  Spec: 9.10 SHMEM_WAIT_UNTIL_SOME.
    """
    return words.wait_some(_checked("wait_until_some", ivars, cmp, value, status))


def test_all(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> bool:
    """Whether every element of ``ivars`` compares so; True for an empty set.

    Arguments, order and errors: wait_until_all.  Spec: 9.10 SHMEM_TEST_ALL.
    """
    return words.all_hold(_checked("test_all", ivars, cmp, value, status))


def test_any(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> int | None:
    """The index of an element of ``ivars`` that compares so, None where none does.

    Arguments, order and errors: wait_until_all.  Spec: 9.10 SHMEM_TEST_ANY.
    """
    checked = _checked("test_any", ivars, cmp, value, status)
    return words.any_holds(checked, checked.look())


def test_some(ivars: Any, cmp: CMP | str, value: int, status: Any = None) -> list[int]:
    """The indices of all elements of ``ivars`` that compare so, in order.

    Arguments, order and errors: wait_until_all.  Spec: 9.10 SHMEM_TEST_SOME.
    """
    return words.satisfied(_checked("test_some", ivars, cmp, value, status))


def comparison(routine: str, cmp: Any) -> int:
    """The native code of ``cmp``. Errors: ArgumentError."""
    try:
        return _COMPARISONS[cmp]
    except (KeyError, TypeError):
        refuse(ArgumentError, routine, "cmp", repr(cmp), "one of shmem.CMP, or one of " + " ".join(_SIGNS.values()))


def _checked(routine: str, ivars: Any, cmp: Any, value: Any, status: Any) -> Words:
    """One value for all elements; the vector forms put an array in its place."""
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
    place = operand.heap.direct, operand.heap.base, operand.address, operand.nelems, operand.dtype
    return Words(routine, *place, comparison(routine, cmp), exact, address, keep)


# ---- the vector forms: a value for each element ----

_DOC = """{plain} with a value for each element: that of ``cmp_values`` in its place.

    cmp_values: an array of the dtype of ivars, or a list of ints, as many as ivars has.
    Other arguments, result, order and errors: {plain}.  Spec: 9.10 SHMEM_{name}.
    """


def _vector(plain: str, finish: Callable[[Words], Any]) -> Callable[..., Any]:
    name = plain + "_vector"

    def call(ivars: Any, cmp: Any, cmp_values: Any, status: Any = None) -> Any:
        values = _values(name, ivars, cmp_values)
        return finish(_checked(name, ivars, cmp, 0, status)._replace(value=values))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _DOC.format(plain=plain, name=name.upper())
    return call


def _values(routine: str, ivars: Any, cmp_values: Any) -> np.ndarray:
    """A private copy, for what the caller passed may be no array, and may change meanwhile."""
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
