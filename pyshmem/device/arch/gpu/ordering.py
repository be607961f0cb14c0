"""Completion, ordering and signals of a program, on GPUs: put_signal is a copy (copies.py), then a signal from here.

All threads of the program call these functions.
"""

from __future__ import annotations

import triton

from pyshmem.device.arch.gpu import instructions as gpu


@triton.jit
def join(ctx):
    """Complete the loads and stores of all threads of the program, and make them visible to all its threads."""
    gpu.drain(ctx)
    gpu.barrier(ctx)


@triton.jit
def fence(ctx):
    gpu.drain(ctx)
    gpu.release(ctx)
    gpu.barrier(ctx)


@triton.jit
def quiet(ctx):
    gpu.drain(ctx)
    gpu.complete(ctx)
    gpu.barrier(ctx)


@triton.jit
def set_signal(ctx, pointer, value):
    """Store a uint64 atomically, after the earlier stores of all threads of the program."""
    join(ctx)
    gpu.store_release(ctx, pointer, value)


@triton.jit
def add_signal(ctx, pointer, value):
    join(ctx)
    gpu.add_release(ctx, pointer, value)
