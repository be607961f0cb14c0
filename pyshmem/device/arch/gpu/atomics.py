"""Atomics on GPUs: Triton's own, and on AMD the fences around them. instructions describes the memory model."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch import operators
from pyshmem.device.arch.gpu import blocks
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.rules import count_of
from pyshmem.device.arch.targets import is_nvidia

operate = triton.jit(operators.operate)


@triton.jit
def atomic(ctx, op: tl.constexpr, pointers, value, mask, sem: tl.constexpr, scope: tl.constexpr):
    """Execute Triton's atomic of that operator. On AMD at system scope, fences around a relaxed atomic provide the order.

    On AMD some operators are loops of compare-and-swap, and the release of Triton 3.7 may not wait for its write-back.
    """
    value, lanes = blocks.spread(value, pointers), blocks.lanes(mask, pointers)
    if scope == "sys" and not is_nvidia(ctx.where):
        before(ctx, sem)
        found = operate(op, pointers, value, lanes, "relaxed", scope)
        behind(ctx, sem)
        return found
    else:
        return operate(op, pointers, value, lanes, sem, scope)


@triton.jit
def compare_swap(ctx, pointers, expected, wanted, sem: tl.constexpr, scope: tl.constexpr):
    """Execute Triton's atomic_cas on integers, ordered as in ``atomic``."""
    if scope == "sys" and not is_nvidia(ctx.where):
        before(ctx, sem)
        found = swap_each(ctx, pointers, expected, wanted, "relaxed", scope)
        behind(ctx, sem)
        return found
    else:
        return swap_each(ctx, pointers, expected, wanted, sem, scope)


@triton.jit
def swap_each(ctx, pointers, expected, wanted, sem: tl.constexpr, scope: tl.constexpr):
    """Execute atomic_cas once per element.

    For AMD, Triton up to 3.9 lets every thread swap, even threads that hold a copy of another thread's element. A block with
    fewer elements than threads therefore gets more rows. The added rows expect the very value that they would store, so
    that they change nothing.
    """
    few: tl.constexpr = blocks.too_few(pointers, gpu.threads(ctx))
    if few and not is_nvidia(ctx.where):
        count: tl.constexpr = count_of(pointers)
        rows: tl.constexpr = gpu.threads(ctx) // count
        first = tl.arange(0, rows)[:, None] == 0
        places = tl.reshape(pointers, [count])[None, :] + tl.zeros([rows, 1], tl.int32)
        value = tl.reshape(wanted, [count])[None, :]
        must = tl.where(first, tl.reshape(expected, [count])[None, :], value)
        found = tl.atomic_cas(places, must, tl.broadcast_to(value, [rows, count]), sem=sem, scope=scope)
        return tl.reshape(tl.sum(tl.where(first, found, 0), axis=0), pointers.shape)
    else:
        return tl.atomic_cas(pointers, expected, wanted, sem=sem, scope=scope)


@triton.jit
def before(ctx, sem: tl.constexpr):
    """On AMD, release by instructions: behind its write-back LLVM leaves out the wait where this wave has stored nothing."""
    if sem == "release" or sem == "acq_rel":
        gpu.drain(ctx)
        gpu.release(ctx)


@triton.jit
def behind(ctx, sem: tl.constexpr):
    if sem == "acquire" or sem == "acq_rel":
        gpu.acquire(ctx)
