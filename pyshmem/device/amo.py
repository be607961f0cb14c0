"""Atomic memory operations in kernels, on one pointer or a block of pointers. Spec: OpenSHMEM 1.6, 9.7.

Only fetching operations have a form with _nbi, which stores the old value to memory: the others complete after quiet anyway.
"""

from __future__ import annotations

from functools import partial

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.templates import documented

ACQ_REL, SYS = tl.constexpr("acq_rel"), tl.constexpr("sys")  # Triton 3.6 compiles no plain text as a default

AMO = """{what}

ctx: a device context.  pe: counts in its team; a scalar, or a block that broadcasts against the pointers.
pointers: symmetric, one or a block, given as this PE's addresses, to {types} of 4 or 8 bytes.
{operands}
sem: "relaxed", "acquire", "release" or "acq_rel".  scope: "sys", or "gpu" or "cta" for programs of this GPU alone.
Order: atomic with respect to every AMO, wait and test of the word, and complete after quiet. A release comes after the
    calling thread's earlier stores, an acquire before its later loads.
{refused}
Spec: {spec}.
"""
VALUE = "value: a number or a block that broadcasts against the pointers.  "
MASK = "mask: lanes where it is false do nothing."
COND = "cond, value: numbers, or blocks that broadcast against the pointers. There is no mask."
FETCH = "fetch: pointers to the same type, in any memory here; they hold the old values after quiet.\n"
NO_SPEC = "none; the specification has no such operation"
ATOMIC, BITWISE = (
    partial(documented, AMO, types=types, operands=VALUE + MASK, spec="OpenSHMEM 1.6, 9.7 SHMEM_{NAME}")
    for types in ("integers or floats", "integers")
)


@jit
def modify(
    ctx, routine: tl.constexpr, op: tl.constexpr, pointers, value, pe, mask, sem: tl.constexpr, scope: tl.constexpr
):
    """Apply one operator on ``pe`` and return the old value, in the name of ``routine``."""
    arch.check_atomic(ctx, routine, op, pointers, pe, mask, sem, scope)
    what: tl.constexpr = "set" if op == "swap" else op
    event = arch.begin_write(ctx, routine, what, pointers, value, pe, pointers, 1)
    found = transport.atomic(ctx, routine, op, pointers, value, pe, mask, sem, scope)
    arch.end_event(ctx, event)
    return found


@ATOMIC("Write ``value``.")
@jit
def atomic_set(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_set", "swap", pointers, value, pe, mask, sem, scope)


@ATOMIC("Write ``value`` and return the old value.")
@jit
def atomic_swap(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_swap", "swap", pointers, value, pe, mask, sem, scope)


@ATOMIC("Add ``value`` and return the old value.")
@jit
def atomic_fetch_add(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_fetch_add", "add", pointers, value, pe, mask, sem, scope)


@ATOMIC("Add ``value``.")
@jit
def atomic_add(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_add", "add", pointers, value, pe, mask, sem, scope)


@BITWISE("Combine the element with ``value`` by bitwise and and return the old value.")
@jit
def atomic_fetch_and(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_fetch_and", "and", pointers, value, pe, mask, sem, scope)


@BITWISE("Combine the element with ``value`` by bitwise and.")
@jit
def atomic_and(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_and", "and", pointers, value, pe, mask, sem, scope)


@BITWISE("Combine the element with ``value`` by bitwise or and return the old value.")
@jit
def atomic_fetch_or(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_fetch_or", "or", pointers, value, pe, mask, sem, scope)


@BITWISE("Combine the element with ``value`` by bitwise or.")
@jit
def atomic_or(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_or", "or", pointers, value, pe, mask, sem, scope)


@BITWISE("Combine the element with ``value`` by bitwise exclusive or and return the old value.")
@jit
def atomic_fetch_xor(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_fetch_xor", "xor", pointers, value, pe, mask, sem, scope)


@BITWISE("Combine the element with ``value`` by bitwise exclusive or.")
@jit
def atomic_xor(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_xor", "xor", pointers, value, pe, mask, sem, scope)


@ATOMIC("Write the lesser of ``value`` and the element (IEEE 754's totalOrder) and return the old value.", spec=NO_SPEC)
@jit
def atomic_fetch_min(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_fetch_min", "min", pointers, value, pe, mask, sem, scope)


@ATOMIC("Write the lesser of ``value`` and the element. Floats are compared by IEEE 754's totalOrder.", spec=NO_SPEC)
@jit
def atomic_min(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_min", "min", pointers, value, pe, mask, sem, scope)


@ATOMIC(
    "Write the greater of ``value`` and the element (IEEE 754's totalOrder) and return the old value.", spec=NO_SPEC
)
@jit
def atomic_fetch_max(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_fetch_max", "max", pointers, value, pe, mask, sem, scope)


@ATOMIC("Write the greater of ``value`` and the element. Floats are compared by IEEE 754's totalOrder.", spec=NO_SPEC)
@jit
def atomic_max(ctx, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_max", "max", pointers, value, pe, mask, sem, scope)


@ATOMIC("Add 1 and return the old value.", operands=MASK)
@jit
def atomic_fetch_inc(ctx, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return modify(ctx, "atomic_fetch_inc", "add", pointers, 1, pe, mask, sem, scope)


@ATOMIC("Add 1.", operands=MASK)
@jit
def atomic_inc(ctx, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify(ctx, "atomic_inc", "add", pointers, 1, pe, mask, sem, scope)


@ATOMIC("Return the element.", operands=MASK)
@jit
def atomic_fetch(ctx, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return fetch_element(ctx, "atomic_fetch", pointers, pe, mask, sem, scope)


@jit
def fetch_element(ctx, routine: tl.constexpr, pointers, pe, mask, sem: tl.constexpr, scope: tl.constexpr):
    """atomic_fetch, in the name of ``routine``."""
    arch.check_atomic(ctx, routine, "fetch", pointers, pe, mask, sem, scope)
    words = transport.as_words(pointers)
    # 0 added to the bits: adding 0.0 would turn -0.0 into 0.0, and AMD has no or across GPUs but a loop
    event = arch.begin_call(ctx, routine, pe, pointers)
    found = transport.atomic(ctx, routine, "add", words, 0, pe, mask, sem, scope)
    arch.end_event(ctx, event)
    return found.to(pointers.dtype.element_ty, bitcast=True)


@ATOMIC("Write ``value`` where the element equals ``cond``, and return the old value.", operands=COND)
@jit
def atomic_compare_swap(ctx, pointers, cond, value, pe, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    return compare_swap(ctx, "atomic_compare_swap", pointers, cond, value, pe, sem, scope)


@jit
def compare_swap(ctx, routine: tl.constexpr, pointers, cond, value, pe, sem: tl.constexpr, scope: tl.constexpr):
    """atomic_compare_swap, in the name of ``routine``."""
    arch.check_atomic(ctx, routine, "swap", pointers, pe, None, sem, scope)
    event = arch.begin_call(ctx, routine, pe, pointers)
    found = transport.compare_swap(ctx, routine, pointers, cond, value, pe, sem, scope)
    arch.end_event(ctx, event)
    return found


@ATOMIC("Store the element to ``fetch``.", operands=FETCH + MASK)
@jit
def atomic_fetch_nbi(ctx, fetch, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    arch.check_fetch("atomic_fetch_nbi", fetch, pointers)
    tl.store(fetch, fetch_element(ctx, "atomic_fetch_nbi", pointers, pe, mask, sem, scope), mask=mask)


@ATOMIC(
    "Write ``value`` where the element equals ``cond``, and store the old value to ``fetch``.", operands=FETCH + COND
)
@jit
def atomic_compare_swap_nbi(
    ctx, fetch, pointers, cond, value, pe, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
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
    """Apply one operator on ``pe`` and store the old value to ``fetch``."""
    arch.check_fetch(routine, fetch, pointers)
    tl.store(fetch, modify(ctx, routine, op, pointers, value, pe, mask, sem, scope), mask=mask)


@ATOMIC("Write ``value`` and store the old value to ``fetch``.", operands=FETCH + VALUE + MASK)
@jit
def atomic_swap_nbi(ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify_nbi(ctx, "atomic_swap_nbi", "swap", fetch, pointers, value, pe, mask, sem, scope)


@ATOMIC("Add 1 and store the old value to ``fetch``.", operands=FETCH + MASK)
@jit
def atomic_fetch_inc_nbi(ctx, fetch, pointers, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    modify_nbi(ctx, "atomic_fetch_inc_nbi", "add", fetch, pointers, 1, pe, mask, sem, scope)


@ATOMIC("Add ``value`` and store the old value to ``fetch``.", operands=FETCH + VALUE + MASK)
@jit
def atomic_fetch_add_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    modify_nbi(ctx, "atomic_fetch_add_nbi", "add", fetch, pointers, value, pe, mask, sem, scope)


@BITWISE(
    "Combine the element with ``value`` by bitwise and and store the old value to ``fetch``.",
    operands=FETCH + VALUE + MASK,
)
@jit
def atomic_fetch_and_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    modify_nbi(ctx, "atomic_fetch_and_nbi", "and", fetch, pointers, value, pe, mask, sem, scope)


@BITWISE(
    "Combine the element with ``value`` by bitwise or and store the old value to ``fetch``.",
    operands=FETCH + VALUE + MASK,
)
@jit
def atomic_fetch_or_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    modify_nbi(ctx, "atomic_fetch_or_nbi", "or", fetch, pointers, value, pe, mask, sem, scope)


@BITWISE(
    "Combine the element with ``value`` by bitwise exclusive or and store the old value to ``fetch``.",
    operands=FETCH + VALUE + MASK,
)
@jit
def atomic_fetch_xor_nbi(
    ctx, fetch, pointers, value, pe, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS
):
    modify_nbi(ctx, "atomic_fetch_xor_nbi", "xor", fetch, pointers, value, pe, mask, sem, scope)
