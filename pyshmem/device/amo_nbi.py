"""Fetching atomics whose result goes to memory. Spec: OpenSHMEM 1.6, 9.7.

fetch: a pointer, or a block of them, to elements of the pointers' type in any memory here. What was there is in it after
quiet, for every thread; lanes that mask leaves out are not written. All else is as without _nbi.
No other atomic needs such a form: those that return nothing are done after quiet in any case.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import amo, arch
from pyshmem.device.amo import ACQ_REL, SYS
from pyshmem.device.arch import jit
from pyshmem.device.context import DeviceContext


@jit
def atomic_fetch_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_fetch that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_NBI."""
    arch.check_fetch("atomic_fetch_nbi", fetch, pointers)
    tl.store(fetch, amo.fetch(ctx, "atomic_fetch_nbi", pointers, pe, mask, sem, scope), mask=mask)


@jit
def atomic_compare_swap_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    cond: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_compare_swap that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_COMPARE_SWAP_NBI."""
    arch.check_fetch("atomic_compare_swap_nbi", fetch, pointers)
    tl.store(fetch, amo.compare_swap(ctx, "atomic_compare_swap_nbi", pointers, cond, value, pe, sem, scope))


@jit
def modify(
    ctx: DeviceContext,
    routine: tl.constexpr,
    op: tl.constexpr,
    fetch: tl.tensor,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> None:
    """Apply one operator on ``pe``; what was there to ``fetch``."""
    arch.check_fetch(routine, fetch, pointers)
    tl.store(fetch, amo.modify(ctx, routine, op, pointers, value, pe, mask, sem, scope), mask=mask)


@jit
def atomic_swap_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_swap that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_SWAP_NBI."""
    modify(ctx, "atomic_swap_nbi", "swap", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_inc_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_fetch_inc that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_INC_NBI."""
    modify(ctx, "atomic_fetch_inc_nbi", "add", fetch, pointers, 1, pe, mask, sem, scope)


@jit
def atomic_fetch_add_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_fetch_add that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_ADD_NBI."""
    modify(ctx, "atomic_fetch_add_nbi", "add", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_and_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_fetch_and that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_AND_NBI."""
    modify(ctx, "atomic_fetch_and_nbi", "and", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_or_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_fetch_or that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_OR_NBI."""
    modify(ctx, "atomic_fetch_or_nbi", "or", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_xor_nbi(
    ctx: DeviceContext,
    fetch: tl.tensor,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """atomic_fetch_xor that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_XOR_NBI."""
    modify(ctx, "atomic_fetch_xor_nbi", "xor", fetch, pointers, value, pe, mask, sem, scope)
