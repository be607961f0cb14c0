"""wait_until and test in kernels. Spec: OpenSHMEM 1.6, 9.10. All are acquires."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.runtime import comparisons

CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE = (
    tl.constexpr(getattr(comparisons, name)) for name in comparisons.NAMES
)


@jit
def wait_until(ctx, ivar, cmp, value):
    """Wait until the word at ``ivar`` here compares so with ``value``. The whole program waits.

    ivar: one symmetric pointer to int32, int64, uint32 or uint64, compared with its signedness.  cmp: CMP_EQ ... CMP_LE.
    Order: an acquire: what its writer ordered before the word is readable after.
    Errors: address, pointee, a wait over PYSHMEM_WAIT_TIMEOUT.  Spec: 9.10 SHMEM_WAIT_UNTIL.
    """
    arch.check_one(ctx, "wait_until", "ivar", ivar, None)
    arch.wait(ctx, "wait_until", "ivar", ivar, cmp, value)


@jit
def test(ctx, ivar, cmp, value):
    """Whether the word at ``ivar`` here compares so with ``value`` now. All else: wait_until. Spec: 9.10 SHMEM_TEST."""
    arch.check_one(ctx, "test", "ivar", ivar, None)
    return arch.test(ctx, "test", "ivar", ivar, cmp, value)


@jit
def wait_until_all(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    """Wait until each word has compared so with ``value``; at once where none counts. Spec: 9.10 SHMEM_WAIT_UNTIL_ALL."""
    arch.check_many(ctx, "wait_until_all", ivars, nelems, status, cmp)
    wanted = arch.fit("wait_until_all", "value", value, ivars)
    arch.wait_all(ctx, "wait_until_all", ivars, nelems, status, cmp, wanted)


@jit
def wait_until_any(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    """Wait until some word compares so with ``value``; its index, SIZE_MAX at once where none counts.

    Spec: 9.10 SHMEM_WAIT_UNTIL_ANY.
    """
    arch.check_many(ctx, "wait_until_any", ivars, nelems, status, cmp)
    wanted = arch.fit("wait_until_any", "value", value, ivars)
    return arch.wait_any(ctx, "wait_until_any", ivars, nelems, status, cmp, wanted)


@jit
def wait_until_some(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, value):
    """Wait until at least one word compares so with ``value``; how many do, 0 at once where none counts.

    Spec: 9.10 SHMEM_WAIT_UNTIL_SOME.
    """
    arch.check_many(ctx, "wait_until_some", ivars, nelems, status, cmp)
    arch.expect("wait_until_some", "indices", indices, tl.uint64)
    wanted = arch.fit("wait_until_some", "value", value, ivars)
    return arch.wait_some(ctx, "wait_until_some", ivars, nelems, indices, status, cmp, wanted)


@jit
def test_all(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    """Whether each word compares so with ``value`` now; true where none counts. Spec: 9.10 SHMEM_TEST_ALL."""
    arch.check_many(ctx, "test_all", ivars, nelems, status, cmp)
    wanted = arch.fit("test_all", "value", value, ivars)
    return arch.test_all(ctx, ivars, nelems, status, cmp, wanted)


@jit
def test_any(ctx, ivars, nelems, status, cmp: tl.constexpr, value):
    """The index of a word that compares so with ``value`` now, SIZE_MAX where none does. Spec: 9.10 SHMEM_TEST_ANY."""
    arch.check_many(ctx, "test_any", ivars, nelems, status, cmp)
    wanted = arch.fit("test_any", "value", value, ivars)
    return arch.test_any(ctx, ivars, nelems, status, cmp, wanted)


@jit
def test_some(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, value):
    """How many words compare so with ``value`` now. Spec: 9.10 SHMEM_TEST_SOME."""
    arch.check_many(ctx, "test_some", ivars, nelems, status, cmp)
    arch.expect("test_some", "indices", indices, tl.uint64)
    wanted = arch.fit("test_some", "value", value, ivars)
    return arch.test_some(ctx, ivars, nelems, indices, status, cmp, wanted)


@jit
def wait_until_all_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    """wait_until_all with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_WAIT_UNTIL_ALL_VECTOR.
    """
    arch.check_many(ctx, "wait_until_all_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_all_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    arch.wait_all(ctx, "wait_until_all_vector", ivars, nelems, status, cmp, cmp_values)


@jit
def wait_until_any_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    """wait_until_any with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_WAIT_UNTIL_ANY_VECTOR.
    """
    arch.check_many(ctx, "wait_until_any_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_any_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.wait_any(ctx, "wait_until_any_vector", ivars, nelems, status, cmp, cmp_values)


@jit
def wait_until_some_vector(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, cmp_values):
    """wait_until_some with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_WAIT_UNTIL_SOME_VECTOR.
    """
    arch.check_many(ctx, "wait_until_some_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_some_vector", "indices", indices, tl.uint64)
    arch.expect("wait_until_some_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.wait_some(ctx, "wait_until_some_vector", ivars, nelems, indices, status, cmp, cmp_values)


@jit
def test_all_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    """test_all with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_TEST_ALL_VECTOR.
    """
    arch.check_many(ctx, "test_all_vector", ivars, nelems, status, cmp)
    arch.expect("test_all_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.test_all(ctx, ivars, nelems, status, cmp, cmp_values)


@jit
def test_any_vector(ctx, ivars, nelems, status, cmp: tl.constexpr, cmp_values):
    """test_any with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_TEST_ANY_VECTOR.
    """
    arch.check_many(ctx, "test_any_vector", ivars, nelems, status, cmp)
    arch.expect("test_any_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.test_any(ctx, ivars, nelems, status, cmp, cmp_values)


@jit
def test_some_vector(ctx, ivars, nelems, indices, status, cmp: tl.constexpr, cmp_values):
    """test_some with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_TEST_SOME_VECTOR.
    """
    arch.check_many(ctx, "test_some_vector", ivars, nelems, status, cmp)
    arch.expect("test_some_vector", "indices", indices, tl.uint64)
    arch.expect("test_some_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.test_some(ctx, ivars, nelems, indices, status, cmp, cmp_values)
