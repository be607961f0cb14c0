"""Atomic memory operations in kernels, on one pointer or a block of them. Spec: OpenSHMEM 1.6, 9.8.

All take ``pointers``: symmetric, to 4 or 8 byte elements, given as this PE's addresses; ``pe``: a scalar, or a block that
broadcasts against them; ``mask``; ``sem``: "relaxed", "acquire", "release" or "acq_rel"; ``scope``: "sys" reaches every
PE, narrower ones only programs of this GPU. Integers go to integer pointees, numbers to floating ones.
Errors: pointee or value of a wrong type, a masked-in address out of live memory, a pe out of range.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import translate


@jit
def modify(
    ctx: Any,
    routine: tl.constexpr,
    op: tl.constexpr,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> Any:
    """Apply one operator on ``pe``; what was there."""
    arch.check_atomic(ctx, routine, op, pointers, pe, mask)
    there = translate(ctx, pointers, pe)
    fitting = arch.fit(routine, "value", value, pointers)
    if op == "swap":
        return tl.atomic_xchg(there, fitting, mask=mask, sem=sem, scope=scope)
    if op == "add":
        return tl.atomic_add(there, fitting, mask=mask, sem=sem, scope=scope)
    if op == "and":
        return tl.atomic_and(there, fitting, mask=mask, sem=sem, scope=scope)
    if op == "or":
        return tl.atomic_or(there, fitting, mask=mask, sem=sem, scope=scope)
    return tl.atomic_xor(there, fitting, mask=mask, sem=sem, scope=scope)


@jit
def atomic_set(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> None:
    """Write ``value``. Done after quiet. Spec: 9.8 SHMEM_ATOMIC_SET."""
    modify(ctx, "atomic_set", "swap", pointers, value, pe, mask, sem, scope)


@jit
def atomic_swap(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> Any:
    """Write ``value`` and return what was there. Spec: 9.8 SHMEM_ATOMIC_SWAP."""
    return modify(ctx, "atomic_swap", "swap", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_add(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> Any:
    """Add ``value`` and return what was there. Spec: 9.8 SHMEM_ATOMIC_FETCH_ADD."""
    return modify(ctx, "atomic_fetch_add", "add", pointers, value, pe, mask, sem, scope)


@jit
def atomic_add(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> None:
    """Add ``value``. Done after quiet. Spec: 9.8 SHMEM_ATOMIC_ADD."""
    modify(ctx, "atomic_add", "add", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_and(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> Any:
    """Bitwise and with ``value`` and return what was there. Spec: 9.8 SHMEM_ATOMIC_FETCH_AND."""
    return modify(ctx, "atomic_fetch_and", "and", pointers, value, pe, mask, sem, scope)


@jit
def atomic_and(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> None:
    """Bitwise and with ``value``. Done after quiet. Spec: 9.8 SHMEM_ATOMIC_AND."""
    modify(ctx, "atomic_and", "and", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_or(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> Any:
    """Bitwise or with ``value`` and return what was there. Spec: 9.8 SHMEM_ATOMIC_FETCH_OR."""
    return modify(ctx, "atomic_fetch_or", "or", pointers, value, pe, mask, sem, scope)


@jit
def atomic_or(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> None:
    """Bitwise or with ``value``. Done after quiet. Spec: 9.8 SHMEM_ATOMIC_OR."""
    modify(ctx, "atomic_or", "or", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_xor(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> Any:
    """Bitwise exclusive or with ``value`` and return what was there. Spec: 9.8 SHMEM_ATOMIC_FETCH_XOR."""
    return modify(ctx, "atomic_fetch_xor", "xor", pointers, value, pe, mask, sem, scope)


@jit
def atomic_xor(
    ctx: Any,
    pointers: Any,
    value: Any,
    pe: Any,
    mask: Any = None,
    sem: tl.constexpr = "acq_rel",
    scope: tl.constexpr = "sys",
) -> None:
    """Bitwise exclusive or with ``value``. Done after quiet. Spec: 9.8 SHMEM_ATOMIC_XOR."""
    modify(ctx, "atomic_xor", "xor", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_inc(
    ctx: Any, pointers: Any, pe: Any, mask: Any = None, sem: tl.constexpr = "acq_rel", scope: tl.constexpr = "sys"
) -> Any:
    """Add 1 and return what was there. Spec: 9.8 SHMEM_ATOMIC_FETCH_INC."""
    return modify(ctx, "atomic_fetch_inc", "add", pointers, 1, pe, mask, sem, scope)


@jit
def atomic_inc(
    ctx: Any, pointers: Any, pe: Any, mask: Any = None, sem: tl.constexpr = "acq_rel", scope: tl.constexpr = "sys"
) -> None:
    """Add 1. Done after quiet. Spec: 9.8 SHMEM_ATOMIC_INC."""
    modify(ctx, "atomic_inc", "add", pointers, 1, pe, mask, sem, scope)


@jit
def atomic_fetch(
    ctx: Any, pointers: Any, pe: Any, mask: Any = None, sem: tl.constexpr = "acq_rel", scope: tl.constexpr = "sys"
) -> Any:
    """Return the element. Spec: 9.8 SHMEM_ATOMIC_FETCH."""
    arch.check_atomic(ctx, "atomic_fetch", "fetch", pointers, pe, mask)
    element: tl.constexpr = pointers.dtype.element_ty
    bits: tl.constexpr = tl.int32 if element.primitive_bitwidth == 32 else tl.int64
    # or with 0 on the bits: adding 0.0 would turn -0.0 into 0.0
    words = translate(ctx, pointers, pe).to(tl.pointer_type(bits), bitcast=True)
    return tl.atomic_or(words, tl.full((), 0, bits), mask=mask, sem=sem, scope=scope).to(element, bitcast=True)


@jit
def atomic_compare_swap(
    ctx: Any, pointers: Any, cond: Any, value: Any, pe: Any, sem: tl.constexpr = "acq_rel", scope: tl.constexpr = "sys"
) -> Any:
    """Write ``value`` where the element equals ``cond``, and return what was there. No mask: Triton's has none.

    Spec: 9.8 SHMEM_ATOMIC_COMPARE_SWAP.
    """
    arch.check_atomic(ctx, "atomic_compare_swap", "swap", pointers, pe, None)
    expected = arch.fit("atomic_compare_swap", "cond", cond, pointers)
    return tl.atomic_cas(
        translate(ctx, pointers, pe),
        expected,
        arch.fit("atomic_compare_swap", "value", value, pointers),
        sem=sem,
        scope=scope,
    )
