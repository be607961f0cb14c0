"""Triton's atomics by the name of the operator. The function is plain: arch/gpu compiles it, the interpreter calls it."""

from __future__ import annotations

import triton.language as tl


def operate(op: tl.constexpr, pointers, value, mask, sem: tl.constexpr, scope: tl.constexpr):
    if op == "swap":
        return tl.atomic_xchg(pointers, value, mask=mask, sem=sem, scope=scope)
    elif op == "add":
        return tl.atomic_add(pointers, value, mask=mask, sem=sem, scope=scope)
    elif op == "min":
        return tl.atomic_min(pointers, value, mask=mask, sem=sem, scope=scope)
    elif op == "max":
        return tl.atomic_max(pointers, value, mask=mask, sem=sem, scope=scope)
    elif op == "and":
        return tl.atomic_and(pointers, value, mask=mask, sem=sem, scope=scope)
    elif op == "or":
        return tl.atomic_or(pointers, value, mask=mask, sem=sem, scope=scope)
    else:
        return tl.atomic_xor(pointers, value, mask=mask, sem=sem, scope=scope)
