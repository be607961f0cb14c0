"""Signals of a program, on GPUs: put_signal is a copy (copies.py), then a signal from here, by vendor in instructions.py.

A signal is a release store or atomic of one thread, behind a barrier of the program: peers that see it see the earlier
stores of all threads. All threads of the program call these functions.
"""

from __future__ import annotations

import triton

from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.ordering import join


@triton.jit
def set_signal(ctx, pointer, value):
    """Store a uint64 atomically, after the earlier stores of all threads of the program."""
    join(ctx)
    gpu.store_release(ctx, pointer, value)


@triton.jit
def add_signal(ctx, pointer, value):
    join(ctx)
    gpu.add_release(ctx, pointer, value)
