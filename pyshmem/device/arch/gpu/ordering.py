"""Completion and ordering of a program, on GPUs.

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
