"""Waits and tests in kernels: of one word, and of arrays of words. Spec: OpenSHMEM 1.6, 9.10."""

from __future__ import annotations

from functools import partial

import triton.language as tl

from pyshmem.base import comparisons
from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.templates import documented

CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE = (
    tl.constexpr(getattr(comparisons, name)) for name in comparisons.NAMES
)

ONE = """{what}

ctx: a device context.  ivar: one symmetric pointer to int32, int64, uint32 or uint64, this PE's address.
cmp: CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT or CMP_LE, a constant.  value: an integer, compared with ivar's signedness.
Order: an acquire: what the word's writer ordered before the word is readable.
Errors: DtypeError and ArgumentError for operands of a wrong type; NotSymmetricError in interpreted kernels{waited}.
Spec: OpenSHMEM 1.6, 9.10 SHMEM_{NAME}.
"""
MANY = """{what}

ctx: a device context.  ivars: a symmetric pointer to nelems words of int32, int64, uint32 or uint64.  nelems: an int.
status: None, or a pointer to int32, in any memory; a word whose status is not 0 is left out.{indices}
cmp: CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT or CMP_LE, a constant.  {values}
{returns}Order: an acquire: what the writers of the words seen ordered before them is readable. All threads call it together.
Errors: DtypeError and ArgumentError for operands of a wrong type; NotSymmetricError in interpreted kernels{waited}.
Spec: OpenSHMEM 1.6, 9.10 SHMEM_{NAME}.
"""
WAITED = ";\n    WaitTimeoutError, raised by the next host call, where the wait takes longer than PYSHMEM_WAIT_TIMEOUT"
VALUE = "value: an integer for all words."
VALUES = "cmp_values: a pointer to nelems values of the words' type, in any memory."
INDICES = "\nindices: a pointer to uint64, in any memory, with room for nelems; it gets the indices found, in order."
INDEX = "Returns: the index, or SIZE_MAX (2**64 - 1); of several words each is found at one time or another.\n"
COUNT = "Returns: how many were found, as uint64.\n"
many = partial(documented, MANY, values=(VALUE, VALUES), indices="", returns="", waited="")


@documented(ONE, "Wait until the word at ``ivar`` here compares true with ``value``.", waited=WAITED)
@jit
def wait_until(ctx, ivar, cmp, value):
    arch.check_here(ctx, "wait_until", "ivar", ivar)
    wait(ctx, "wait_until", "ivar", ivar, cmp, value)


@jit
def wait(ctx, routine: tl.constexpr, argument: tl.constexpr, word, cmp, value):
    """wait_until, in the name of ``routine``. Returns: the value seen."""
    event = arch.begin_wait(ctx, routine, argument, word, cmp, value)
    seen = arch.wait(ctx, routine, argument, word, cmp, value)
    arch.end_event(ctx, event)
    return seen


@documented(ONE, "Return whether the word at ``ivar`` here compares true with ``value`` now.", waited="")
@jit
def test(ctx, ivar, cmp, value):
    arch.check_here(ctx, "test", "ivar", ivar)
    event = arch.begin_call(ctx, "test", None, ivar)
    found = arch.test(ctx, "test", "ivar", ivar, cmp, value)
    arch.end_event(ctx, event)
    return found


WAIT_UNTIL_ALL = many("Wait until every word has compared true; at once where none is left.", waited=WAITED)


@WAIT_UNTIL_ALL
@jit
def wait_until_all(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    arch.check_many(ctx, "wait_until_all", ivars, nelems, status, cmp)
    wanted = arch.fit("wait_until_all", "value", value, ivars)
    event = arch.begin_waits(ctx, "wait_until_all", ivars, nelems, cmp, wanted)
    arch.wait_all(ctx, "wait_until_all", ivars, nelems, status, cmp, wanted)
    arch.end_event(ctx, event)


WAIT_UNTIL_ANY = many(
    "Wait until a word compares true; at once, with SIZE_MAX, where none is left.", returns=INDEX, waited=WAITED
)


@WAIT_UNTIL_ANY
@jit
def wait_until_any(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    arch.check_many(ctx, "wait_until_any", ivars, nelems, status, cmp)
    wanted = arch.fit("wait_until_any", "value", value, ivars)
    event = arch.begin_waits(ctx, "wait_until_any", ivars, nelems, cmp, wanted)
    found = arch.wait_any(ctx, "wait_until_any", ivars, nelems, status, cmp, wanted)
    arch.end_event(ctx, event)
    return found


WAIT_UNTIL_SOME = many(
    "Wait until at least one word compares true; at once, with 0, where none is left.",
    indices=INDICES,
    returns=COUNT,
    waited=WAITED,
)


@WAIT_UNTIL_SOME
@jit
def wait_until_some(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, value):
    arch.check_many(ctx, "wait_until_some", ivars, nelems, status, cmp)
    arch.expect("wait_until_some", "indices", indices, tl.uint64)
    wanted = arch.fit("wait_until_some", "value", value, ivars)
    event = arch.begin_waits(ctx, "wait_until_some", ivars, nelems, cmp, wanted)
    found = arch.wait_some(ctx, "wait_until_some", ivars, nelems, indices, status, cmp, wanted)
    arch.end_event(ctx, event)
    return found


TEST_ALL = many("Return whether every word compares true now; true where none is left.")


@TEST_ALL
@jit
def test_all(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    arch.check_many(ctx, "test_all", ivars, nelems, status, cmp)
    wanted = arch.fit("test_all", "value", value, ivars)
    event = arch.begin_call(ctx, "test_all", None, ivars, nelems)
    found = arch.test_all(ctx, ivars, nelems, status, cmp, wanted)
    arch.end_event(ctx, event)
    return found


TEST_ANY = many("Return the index of a word that compares true now.", returns=INDEX)


@TEST_ANY
@jit
def test_any(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    arch.check_many(ctx, "test_any", ivars, nelems, status, cmp)
    wanted = arch.fit("test_any", "value", value, ivars)
    event = arch.begin_call(ctx, "test_any", None, ivars, nelems)
    found = arch.test_any(ctx, ivars, nelems, status, cmp, wanted)
    arch.end_event(ctx, event)
    return found


TEST_SOME = many("Find the words that compare true now.", indices=INDICES, returns=COUNT)


@TEST_SOME
@jit
def test_some(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, value):
    arch.check_many(ctx, "test_some", ivars, nelems, status, cmp)
    arch.expect("test_some", "indices", indices, tl.uint64)
    wanted = arch.fit("test_some", "value", value, ivars)
    event = arch.begin_call(ctx, "test_some", None, ivars, nelems)
    found = arch.test_some(ctx, ivars, nelems, indices, status, cmp, wanted)
    arch.end_event(ctx, event)
    return found


@WAIT_UNTIL_ALL
@jit
def wait_until_all_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    arch.check_many(ctx, "wait_until_all_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_all_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    event = arch.begin_call(ctx, "wait_until_all_vector", None, ivars, nelems)
    arch.wait_all(ctx, "wait_until_all_vector", ivars, nelems, status, cmp, cmp_values)
    arch.end_event(ctx, event)


@WAIT_UNTIL_ANY
@jit
def wait_until_any_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    arch.check_many(ctx, "wait_until_any_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_any_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    event = arch.begin_call(ctx, "wait_until_any_vector", None, ivars, nelems)
    found = arch.wait_any(ctx, "wait_until_any_vector", ivars, nelems, status, cmp, cmp_values)
    arch.end_event(ctx, event)
    return found


@WAIT_UNTIL_SOME
@jit
def wait_until_some_vector(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, cmp_values):
    arch.check_many(ctx, "wait_until_some_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_some_vector", "indices", indices, tl.uint64)
    arch.expect("wait_until_some_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    event = arch.begin_call(ctx, "wait_until_some_vector", None, ivars, nelems)
    found = arch.wait_some(ctx, "wait_until_some_vector", ivars, nelems, indices, status, cmp, cmp_values)
    arch.end_event(ctx, event)
    return found


@TEST_ALL
@jit
def test_all_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    arch.check_many(ctx, "test_all_vector", ivars, nelems, status, cmp)
    arch.expect("test_all_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    event = arch.begin_call(ctx, "test_all_vector", None, ivars, nelems)
    found = arch.test_all(ctx, ivars, nelems, status, cmp, cmp_values)
    arch.end_event(ctx, event)
    return found


@TEST_ANY
@jit
def test_any_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    arch.check_many(ctx, "test_any_vector", ivars, nelems, status, cmp)
    arch.expect("test_any_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    event = arch.begin_call(ctx, "test_any_vector", None, ivars, nelems)
    found = arch.test_any(ctx, ivars, nelems, status, cmp, cmp_values)
    arch.end_event(ctx, event)
    return found


@TEST_SOME
@jit
def test_some_vector(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, cmp_values):
    arch.check_many(ctx, "test_some_vector", ivars, nelems, status, cmp)
    arch.expect("test_some_vector", "indices", indices, tl.uint64)
    arch.expect("test_some_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    event = arch.begin_call(ctx, "test_some_vector", None, ivars, nelems)
    found = arch.test_some(ctx, ivars, nelems, indices, status, cmp, cmp_values)
    arch.end_event(ctx, event)
    return found
