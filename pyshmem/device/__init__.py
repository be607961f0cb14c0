"""pyshmem inside Triton kernels: ``import pyshmem.device as dev``. The host's names, the device context first.

A call is made by the whole program at once. Import pyshmem before triton: it chooses the interpreter where there is no GPU.
There a process runs one kernel at a time: launches from two threads disturb each other, in Triton itself.

ctx: what shmem.device_context() returns: a team, and the heap that symmetric pointers are of.
pe: an int, counted in ctx's team; it may be known at run time only.
"""

# ruff: noqa: E402
from pyshmem import interpreter as _interpreter

_interpreter.require()

from pyshmem.device.amo import (
    atomic_add,
    atomic_and,
    atomic_compare_swap,
    atomic_fetch,
    atomic_fetch_add,
    atomic_fetch_and,
    atomic_fetch_inc,
    atomic_fetch_or,
    atomic_fetch_xor,
    atomic_inc,
    atomic_or,
    atomic_set,
    atomic_swap,
    atomic_xor,
)
from pyshmem.device.context import DeviceContext, my_pe, n_pes, ptr
from pyshmem.device.ordering import barrier_all, fence, quiet, sync_all
from pyshmem.device.rma import g, get, load, p, put, store
from pyshmem.device.signal import (
    SIGNAL_ADD,
    SIGNAL_SET,
    put_signal,
    signal_add,
    signal_fetch,
    signal_set,
    signal_wait_until,
)
from pyshmem.device.wait import CMP_EQ, CMP_GE, CMP_GT, CMP_LE, CMP_LT, CMP_NE, test, wait_until

__all__ = sorted(
    name
    for name in globals()
    if not name.startswith("_")
    and name not in ("amo", "arch", "context", "ordering", "record", "rma", "signal", "wait")
)
