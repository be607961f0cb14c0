"""Atomics on GPUs: Triton's own, and where it leaves it to us, the order around them. instructions has the memory model."""

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
    """Triton's atomic of that operator. On AMD between GPUs the order is given outside of it.

    There some operators are loops of compare-and-swap, and Triton 3.7's own release may not wait for what it writes back.
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
    """Triton's atomic_cas of integers, ordered as ``atomic``."""
    if scope == "sys" and not is_nvidia(ctx.where):
        before(ctx, sem)
        found = swap_each(ctx, pointers, expected, wanted, "relaxed", scope)
        behind(ctx, sem)
        return found
    else:
        return swap_each(ctx, pointers, expected, wanted, sem, scope)


@triton.jit
def swap_each(ctx, pointers, expected, wanted, sem: tl.constexpr, scope: tl.constexpr):
    """For AMD up to Triton 3.9 lets every thread swap, also those that only repeat an element of a block with too few.

    So a block gets more rows, up to an element a thread; those swap an element with what it must equal, which changes none.
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
    if sem == "release" or sem == "acq_rel":
        gpu.drain(ctx)
        gpu.release(ctx)


@triton.jit
def behind(ctx, sem: tl.constexpr):
    if sem == "acquire" or sem == "acq_rel":
        gpu.acquire(ctx)
