"""Waits and tests on many words in kernels, each with a value of its own. Spec: OpenSHMEM 1.6, 9.10."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import DeviceContext


@jit
def wait_until_all_vector(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    cmp_values: tl.tensor,
) -> None:
    """wait_until_all with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_WAIT_UNTIL_ALL_VECTOR.
    """
    arch.check_many(ctx, "wait_until_all_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_all_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    arch.wait_all(ctx, "wait_until_all_vector", ivars, nelems, status, cmp, cmp_values)


@jit
def wait_until_any_vector(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    cmp_values: tl.tensor,
) -> tl.tensor:
    """wait_until_any with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_WAIT_UNTIL_ANY_VECTOR.
    """
    arch.check_many(ctx, "wait_until_any_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_any_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.wait_any(ctx, "wait_until_any_vector", ivars, nelems, status, cmp, cmp_values)


@jit
def wait_until_some_vector(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    indices: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    cmp_values: tl.tensor,
) -> tl.tensor:
    """wait_until_some with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_WAIT_UNTIL_SOME_VECTOR.
    """
    arch.check_many(ctx, "wait_until_some_vector", ivars, nelems, status, cmp)
    arch.expect("wait_until_some_vector", "indices", indices, tl.uint64)
    arch.expect("wait_until_some_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.wait_some(ctx, "wait_until_some_vector", ivars, nelems, indices, status, cmp, cmp_values)


@jit
def test_all_vector(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    cmp_values: tl.tensor,
) -> tl.tensor:
    """test_all with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_TEST_ALL_VECTOR.
    """
    arch.check_many(ctx, "test_all_vector", ivars, nelems, status, cmp)
    arch.expect("test_all_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.test_all(ctx, ivars, nelems, status, cmp, cmp_values)


@jit
def test_any_vector(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    cmp_values: tl.tensor,
) -> tl.tensor:
    """test_any with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_TEST_ANY_VECTOR.
    """
    arch.check_many(ctx, "test_any_vector", ivars, nelems, status, cmp)
    arch.expect("test_any_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.test_any(ctx, ivars, nelems, status, cmp, cmp_values)


@jit
def test_some_vector(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    indices: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    cmp_values: tl.tensor,
) -> tl.tensor:
    """test_some with a value for each word.

    cmp_values: a pointer in any memory to nelems values of the words' type.  Spec: 9.10 SHMEM_TEST_SOME_VECTOR.
    """
    arch.check_many(ctx, "test_some_vector", ivars, nelems, status, cmp)
    arch.expect("test_some_vector", "indices", indices, tl.uint64)
    arch.expect("test_some_vector", "cmp_values", cmp_values, ivars.dtype.element_ty)
    return arch.test_some(ctx, ivars, nelems, indices, status, cmp, cmp_values)
