"""Waits and tests on many words in kernels, made by the whole program at once. Spec: OpenSHMEM 1.6, 9.10.

ivars: a symmetric pointer to nelems words of type int32, int64, uint32 or uint64, compared with its signedness.
nelems: a run-time int.  status: None, or a pointer in any memory to an int32 for each word; not 0 leaves the word out.
cmp: CMP_EQ ... CMP_LE.  value: an integer, for all words.
indices: a pointer in any memory to uint64, room for nelems; it holds the indices of the words that compare so, in order.
Order: all are acquires: what the writers of the words that were seen ordered before them is readable after.
Errors: address, pointee, a wait over PYSHMEM_WAIT_TIMEOUT.
Indices and counts are returned as uint64; SIZE_MAX is 2**64 - 1. Of several words that compare so a call that gives one
index gives another one at another time, so that none starves.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import DeviceContext


@jit
def wait_until_all(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> None:
    """Wait until each word has compared so with ``value``; at once where none counts. Spec: 9.10 SHMEM_WAIT_UNTIL_ALL."""
    arch.check_many(ctx, "wait_until_all", ivars, nelems, status, cmp)
    wanted = arch.fit("wait_until_all", "value", value, ivars)
    arch.wait_all(ctx, "wait_until_all", ivars, nelems, status, cmp, wanted)


@jit
def wait_until_any(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> tl.tensor:
    """Wait until some word compares so with ``value``; its index, SIZE_MAX at once where none counts.

    Spec: 9.10 SHMEM_WAIT_UNTIL_ANY.
    """
    arch.check_many(ctx, "wait_until_any", ivars, nelems, status, cmp)
    wanted = arch.fit("wait_until_any", "value", value, ivars)
    return arch.wait_any(ctx, "wait_until_any", ivars, nelems, status, cmp, wanted)


@jit
def wait_until_some(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    indices: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> tl.tensor:
    """Wait until at least one word compares so with ``value``; how many do, 0 at once where none counts.

    Spec: 9.10 SHMEM_WAIT_UNTIL_SOME.
    """
    arch.check_many(ctx, "wait_until_some", ivars, nelems, status, cmp)
    arch.expect("wait_until_some", "indices", indices, tl.uint64)
    wanted = arch.fit("wait_until_some", "value", value, ivars)
    return arch.wait_some(ctx, "wait_until_some", ivars, nelems, indices, status, cmp, wanted)


@jit
def test_all(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> tl.tensor:
    """Whether each word compares so with ``value`` now; true where none counts. Spec: 9.10 SHMEM_TEST_ALL."""
    arch.check_many(ctx, "test_all", ivars, nelems, status, cmp)
    wanted = arch.fit("test_all", "value", value, ivars)
    return arch.test_all(ctx, ivars, nelems, status, cmp, wanted)


@jit
def test_any(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> tl.tensor:
    """The index of a word that compares so with ``value`` now, SIZE_MAX where none does. Spec: 9.10 SHMEM_TEST_ANY."""
    arch.check_many(ctx, "test_any", ivars, nelems, status, cmp)
    wanted = arch.fit("test_any", "value", value, ivars)
    return arch.test_any(ctx, ivars, nelems, status, cmp, wanted)


@jit
def test_some(
    ctx: DeviceContext,
    ivars: tl.tensor,
    nelems: tl.tensor,
    indices: tl.tensor,
    status: tl.tensor,
    cmp: tl.constexpr,
    value: tl.tensor,
) -> tl.tensor:
    """How many words compare so with ``value`` now. Spec: 9.10 SHMEM_TEST_SOME."""
    arch.check_many(ctx, "test_some", ivars, nelems, status, cmp)
    arch.expect("test_some", "indices", indices, tl.uint64)
    wanted = arch.fit("test_some", "value", value, ivars)
    return arch.test_some(ctx, ivars, nelems, indices, status, cmp, wanted)
