"""Signals of a program, on GPUs: put_signal is a copy (copies.py), then a signal from here.

All threads of the program call these functions. One of them writes the signal, as a release behind a barrier of the program:
peers that see it see the earlier stores of all threads. What set and add emit, by the functions of instructions.py:

    NVIDIA  bar.sync, then st.release.sys or red.release.sys.add
    AMD     s_waitcnt vmcnt(0) in each wave, s_barrier, then a release, buffer_wbl2 and s_waitcnt vmcnt(0), and a relaxed
            global_atomic_swap_x2 or global_atomic_add_x2
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
