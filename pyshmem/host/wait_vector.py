"""wait_until and test of many elements, each with a value of its own. Spec: OpenSHMEM 1.6, 9.10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pyshmem.host.wait import Many, all_hold, any_holds, check_many, satisfied, wait_all, wait_any, wait_some
from pyshmem.runtime.arguments import describe, name_of, scalar, symmetric_array
from pyshmem.runtime.errors import ArgumentError, DtypeError, refuse

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


def _vector(plain: str, finish: Callable[[Many], Any]) -> Callable[..., Any]:
    name = plain + "_vector"

    def call(ivars: Any, cmp: Any, cmp_values: Any, status: Any = None) -> Any:
        values = _values(name, ivars, cmp_values)
        return finish(check_many(name, ivars, cmp, 0, status)._replace(value=values))

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
    """A private copy, for what the caller passed may be no array, and may change meanwhile."""
    operand = symmetric_array(routine, "ivars", ivars)
    if isinstance(cmp_values, (list, tuple)):
        exact = [scalar(routine, "cmp_values", value, operand.dtype) for value in cmp_values]
        values = np.array(exact, name_of(operand.dtype))
    else:
        given = describe(routine, "cmp_values", cmp_values)
        if given.dtype != operand.dtype:
            wants = f"the {name_of(operand.dtype)} of ivars: no casting between arrays"
            refuse(DtypeError, routine, "cmp_values", f"{name_of(given.dtype)} elements", wants)
        plain = cmp_values if isinstance(cmp_values, np.ndarray) else torch.as_tensor(cmp_values).cpu().numpy()
        values = plain.reshape(-1).copy()
    if values.size != operand.nelems:
        wants = f"one for each of the {operand.nelems} of ivars"
        refuse(ArgumentError, routine, "cmp_values", f"{values.size} elements", wants)
    return values


wait_until_all_vector = _vector("wait_until_all", wait_all)
wait_until_any_vector = _vector("wait_until_any", wait_any)
wait_until_some_vector = _vector("wait_until_some", wait_some)
test_all_vector = _vector("test_all", all_hold)
test_any_vector = _vector("test_any", lambda many: any_holds(many, many.look()))
test_some_vector = _vector("test_some", satisfied)
