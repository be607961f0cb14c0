"""Atomic memory operations in kernels, on one pointer or a block of them. Spec: OpenSHMEM 1.6, 9.7.

pointers: symmetric, one or a block, to integers or floats of 4 or 8 bytes (and, or, xor: integers), this PE's addresses.
value, cond: integers for integer pointees, numbers for floating ones; scalars, or blocks that broadcast to the pointers;
min and max order integers by their signedness and floats by IEEE 754's totalOrder: -0.0 < 0.0, NaN over infinity, NaN with a
sign under -infinity.
pe: a scalar, or a block that broadcasts against them.  mask: where it is false nothing happens.
sem: "relaxed", "acquire", "release" or "acq_rel".  scope: "sys" reaches every PE, "gpu" and "cta" only this GPU's programs.
Order: atomic against every AMO, wait and test on the word; done after quiet. As a release it comes after what its thread
has stored, as an acquire before what its thread loads; a fence orders the whole program's.
Errors: pointee or value of a wrong type, a masked-in address out of live memory, a pe out of range.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit

ACQ_REL, SYS = tl.constexpr("acq_rel"), tl.constexpr("sys")  # Triton 3.6 compiles no plain text as a default


@jit
def modify(
    ctx, routine: tl.constexpr, op: tl.constexpr, pointers, value, pe, mask, sem: tl.constexpr, scope: tl.constexpr
):
    """Apply one operator on ``pe``; what was there."""
    arch.check_atomic(ctx, routine, op, pointers, pe, mask)
    return transport.atomic(ctx, routine, op, pointers, value, pe, mask, sem, scope)


@jit
def atomic_set(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Write ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_SET."""
    modify(ctx, "atomic_set", "swap", pointers, value, pe, mask, sem, scope)


@jit
def atomic_swap(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Write ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_SWAP."""
    return modify(ctx, "atomic_swap", "swap", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_add(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Add ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_ADD."""
    return modify(ctx, "atomic_fetch_add", "add", pointers, value, pe, mask, sem, scope)


@jit
def atomic_add(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Add ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_ADD."""
    modify(ctx, "atomic_add", "add", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_and(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Bitwise and with ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_AND."""
    return modify(ctx, "atomic_fetch_and", "and", pointers, value, pe, mask, sem, scope)


@jit
def atomic_and(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Bitwise and with ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_AND."""
    modify(ctx, "atomic_and", "and", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_or(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Bitwise or with ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_OR."""
    return modify(ctx, "atomic_fetch_or", "or", pointers, value, pe, mask, sem, scope)


@jit
def atomic_or(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Bitwise or with ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_OR."""
    modify(ctx, "atomic_or", "or", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_xor(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Bitwise exclusive or with ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_XOR."""
    return modify(ctx, "atomic_fetch_xor", "xor", pointers, value, pe, mask, sem, scope)


@jit
def atomic_xor(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Bitwise exclusive or with ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_XOR."""
    modify(ctx, "atomic_xor", "xor", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_min(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Write the lesser of ``value`` and the element, and return what was there. Not in the specification."""
    return modify(ctx, "atomic_fetch_min", "min", pointers, value, pe, mask, sem, scope)


@jit
def atomic_min(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Write the lesser of ``value`` and the element. Done after quiet. Not in the specification."""
    modify(ctx, "atomic_min", "min", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_max(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Write the greater of ``value`` and the element, and return what was there. Not in the specification."""
    return modify(ctx, "atomic_fetch_max", "max", pointers, value, pe, mask, sem, scope)


@jit
def atomic_max(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Write the greater of ``value`` and the element. Done after quiet. Not in the specification."""
    modify(ctx, "atomic_max", "max", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_inc(ctx, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Add 1 and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_INC."""
    return modify(ctx, "atomic_fetch_inc", "add", pointers, 1, pe, mask, sem, scope)


@jit
def atomic_inc(ctx, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Add 1. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_INC."""
    modify(ctx, "atomic_inc", "add", pointers, 1, pe, mask, sem, scope)


@jit
def atomic_fetch(ctx, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Return the element. Spec: 9.7 SHMEM_ATOMIC_FETCH."""
    return fetch_element(ctx, "atomic_fetch", pointers, pe, mask, sem, scope)


@jit
def fetch_element(ctx, routine: tl.constexpr, pointers, pe, mask, sem: tl.constexpr, scope: tl.constexpr):
    """atomic_fetch, under any name."""
    arch.check_atomic(ctx, routine, "fetch", pointers, pe, mask)
    words = transport.as_words(pointers)
    # 0 added to the bits: adding 0.0 would turn -0.0 into 0.0, and AMD has no or across GPUs but a loop
    found = transport.atomic(ctx, routine, "add", words, 0, pe, mask, sem, scope)
    return found.to(pointers.dtype.element_ty, bitcast=True)


@jit
def atomic_compare_swap(ctx, pointers, cond, value, pe, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Write ``value`` where the element equals ``cond``, and return what was there. No mask: Triton's has none.

    Spec: 9.7 SHMEM_ATOMIC_COMPARE_SWAP.
    """
    return compare_swap(ctx, "atomic_compare_swap", pointers, cond, value, pe, sem, scope)


@jit
def compare_swap(ctx, routine: tl.constexpr, pointers, cond, value, pe, sem: tl.constexpr, scope: tl.constexpr):
    """atomic_compare_swap, under any name."""
    arch.check_atomic(ctx, routine, "swap", pointers, pe, None)
    return transport.compare_swap(ctx, routine, pointers, cond, value, pe, sem, scope)


@jit
def atomic_fetch_nbi(ctx, fetch, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """atomic_fetch that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_NBI."""
    arch.check_fetch("atomic_fetch_nbi", fetch, pointers)
    tl.store(fetch, fetch_element(ctx, "atomic_fetch_nbi", pointers, pe, mask, sem, scope), mask=mask)


@jit
def atomic_compare_swap_nbi(
    ctx, fetch, pointers, cond, value, pe, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    """atomic_compare_swap that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_COMPARE_SWAP_NBI."""
    arch.check_fetch("atomic_compare_swap_nbi", fetch, pointers)
    tl.store(fetch, compare_swap(ctx, "atomic_compare_swap_nbi", pointers, cond, value, pe, sem, scope))


@jit
def modify_nbi(
    ctx,
    routine: tl.constexpr,
    op: tl.constexpr,
    fetch,
    pointers,
    value,
    pe,
    mask,
    sem: tl.constexpr,
    scope: tl.constexpr,
):
    """Apply one operator on ``pe``; what was there to ``fetch``."""
    arch.check_fetch(routine, fetch, pointers)
    tl.store(fetch, modify(ctx, routine, op, pointers, value, pe, mask, sem, scope), mask=mask)


@jit
def atomic_swap_nbi(ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """atomic_swap that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_SWAP_NBI."""
    modify_nbi(ctx, "atomic_swap_nbi", "swap", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_inc_nbi(ctx, fetch, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """atomic_fetch_inc that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_INC_NBI."""
    modify_nbi(ctx, "atomic_fetch_inc_nbi", "add", fetch, pointers, 1, pe, mask, sem, scope)


@jit
def atomic_fetch_add_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    """atomic_fetch_add that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_ADD_NBI."""
    modify_nbi(ctx, "atomic_fetch_add_nbi", "add", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_and_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    """atomic_fetch_and that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_AND_NBI."""
    modify_nbi(ctx, "atomic_fetch_and_nbi", "and", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_or_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    """atomic_fetch_or that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_OR_NBI."""
    modify_nbi(ctx, "atomic_fetch_or_nbi", "or", fetch, pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_xor_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    """atomic_fetch_xor that leaves what was there in ``fetch``. Spec: 9.7 SHMEM_ATOMIC_FETCH_XOR_NBI."""
    modify_nbi(ctx, "atomic_fetch_xor_nbi", "xor", fetch, pointers, value, pe, mask, sem, scope)
