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

from pyshmem.device import arch
from pyshmem.device.arch import jit, translate
from pyshmem.device.context import DeviceContext

ACQ_REL, SYS = tl.constexpr("acq_rel"), tl.constexpr("sys")  # Triton 3.6 compiles no plain text as a default


@jit
def modify(
    ctx: DeviceContext,
    routine: tl.constexpr,
    op: tl.constexpr,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> tl.tensor:
    """Apply one operator on ``pe``; what was there."""
    arch.check_atomic(ctx, routine, op, pointers, pe, mask)
    there = translate(ctx, pointers, pe)
    fitting = arch.fit(routine, "value", value, there)
    if op == "swap":
        words = as_words(there)
        swapped = arch.atomic(ctx, op, words, in_bits(fitting, words), mask, sem, scope)
        return swapped.to(there.dtype.element_ty, bitcast=True)
    else:
        return arch.atomic(ctx, op, there, fitting, mask, sem, scope)


@jit
def as_words(pointers: tl.tensor) -> tl.tensor:
    """Pointers to the elements' bits, as integers: swaps and fetches move bits, and there are none on floats in between."""
    word: tl.constexpr = tl.int32 if pointers.dtype.element_ty.primitive_bitwidth == 32 else tl.int64
    return pointers.to(tl.pointer_type(word), bitcast=True)


@jit
def in_bits(value: tl.tensor, words: tl.tensor) -> tl.tensor:
    return value.to(words.dtype.element_ty, bitcast=True)


@jit
def atomic_set(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Write ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_SET."""
    modify(ctx, "atomic_set", "swap", pointers, value, pe, mask, sem, scope)


@jit
def atomic_swap(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Write ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_SWAP."""
    return modify(ctx, "atomic_swap", "swap", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_add(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Add ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_ADD."""
    return modify(ctx, "atomic_fetch_add", "add", pointers, value, pe, mask, sem, scope)


@jit
def atomic_add(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Add ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_ADD."""
    modify(ctx, "atomic_add", "add", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_and(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Bitwise and with ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_AND."""
    return modify(ctx, "atomic_fetch_and", "and", pointers, value, pe, mask, sem, scope)


@jit
def atomic_and(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Bitwise and with ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_AND."""
    modify(ctx, "atomic_and", "and", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_or(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Bitwise or with ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_OR."""
    return modify(ctx, "atomic_fetch_or", "or", pointers, value, pe, mask, sem, scope)


@jit
def atomic_or(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Bitwise or with ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_OR."""
    modify(ctx, "atomic_or", "or", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_xor(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Bitwise exclusive or with ``value`` and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_XOR."""
    return modify(ctx, "atomic_fetch_xor", "xor", pointers, value, pe, mask, sem, scope)


@jit
def atomic_xor(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Bitwise exclusive or with ``value``. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_XOR."""
    modify(ctx, "atomic_xor", "xor", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_min(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Write the lesser of ``value`` and the element, and return what was there. Not in the specification."""
    return modify(ctx, "atomic_fetch_min", "min", pointers, value, pe, mask, sem, scope)


@jit
def atomic_min(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Write the lesser of ``value`` and the element. Done after quiet. Not in the specification."""
    modify(ctx, "atomic_min", "min", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_max(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Write the greater of ``value`` and the element, and return what was there. Not in the specification."""
    return modify(ctx, "atomic_fetch_max", "max", pointers, value, pe, mask, sem, scope)


@jit
def atomic_max(
    ctx: DeviceContext,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Write the greater of ``value`` and the element. Done after quiet. Not in the specification."""
    modify(ctx, "atomic_max", "max", pointers, value, pe, mask, sem, scope)


@jit
def atomic_fetch_inc(
    ctx: DeviceContext,
    pointers: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Add 1 and return what was there. Spec: 9.7 SHMEM_ATOMIC_FETCH_INC."""
    return modify(ctx, "atomic_fetch_inc", "add", pointers, 1, pe, mask, sem, scope)


@jit
def atomic_inc(
    ctx: DeviceContext,
    pointers: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> None:
    """Add 1. Done after quiet. Spec: 9.7 SHMEM_ATOMIC_INC."""
    modify(ctx, "atomic_inc", "add", pointers, 1, pe, mask, sem, scope)


@jit
def atomic_fetch(
    ctx: DeviceContext,
    pointers: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor = None,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Return the element. Spec: 9.7 SHMEM_ATOMIC_FETCH."""
    return fetch(ctx, "atomic_fetch", pointers, pe, mask, sem, scope)


@jit
def fetch(
    ctx: DeviceContext,
    routine: tl.constexpr,
    pointers: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> tl.tensor:
    """atomic_fetch, under any name."""
    arch.check_atomic(ctx, routine, "fetch", pointers, pe, mask)
    words = as_words(translate(ctx, pointers, pe))
    # 0 added to the bits: adding 0.0 would turn -0.0 into 0.0, and AMD has no or across GPUs but a loop
    found = arch.atomic(ctx, "add", words, arch.fit(routine, "value", 0, words), mask, sem, scope)
    return found.to(pointers.dtype.element_ty, bitcast=True)


@jit
def atomic_compare_swap(
    ctx: DeviceContext,
    pointers: tl.tensor,
    cond: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    sem: tl.constexpr = ACQ_REL,
    scope: tl.constexpr = SYS,
) -> tl.tensor:
    """Write ``value`` where the element equals ``cond``, and return what was there. No mask: Triton's has none.

    Spec: 9.7 SHMEM_ATOMIC_COMPARE_SWAP.
    """
    return compare_swap(ctx, "atomic_compare_swap", pointers, cond, value, pe, sem, scope)


@jit
def compare_swap(
    ctx: DeviceContext,
    routine: tl.constexpr,
    pointers: tl.tensor,
    cond: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    sem: tl.constexpr,
    scope: tl.constexpr,
) -> tl.tensor:
    """atomic_compare_swap, under any name."""
    arch.check_atomic(ctx, routine, "swap", pointers, pe, None)
    there = translate(ctx, pointers, pe)
    words = as_words(there)
    expected = in_bits(arch.fit(routine, "cond", cond, there), words)
    wanted = in_bits(arch.fit(routine, "value", value, there), words)
    expected, _ = tl.broadcast(expected, words)  # Triton does so for every atomic but this one
    wanted, _ = tl.broadcast(wanted, words)
    found = arch.compare_swap(ctx, words, expected, wanted, sem, scope)
    return found.to(there.dtype.element_ty, bitcast=True)
