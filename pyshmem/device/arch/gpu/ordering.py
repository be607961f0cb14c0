"""What makes a program's stores and loads done, and seen by peers, on GPUs. All threads of the program make these calls."""

from __future__ import annotations

import triton

from pyshmem.device.arch.gpu import instructions as gpu


@triton.jit
def join(ctx):
    """What every thread of the program has stored and loaded is done for all its threads."""
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
    """Store a uint64 as an atomic, after what every thread of the program stored."""
    join(ctx)
    gpu.store_release(ctx, pointer, value)


@triton.jit
def add_signal(ctx, pointer, value):
    join(ctx)
    gpu.add_release(ctx, pointer, value)
