"""Locks: one symmetric int64 word each, zero at first, served first come, first served. Spec: OpenSHMEM 1.6, 9.12.

The word on PE 0 of the world is the lock: the upper half is the next ticket, the lower half the ticket that is served. The
words on the other PEs are not used.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from pyshmem.host import arrays, memory, ordering
from pyshmem.host.wait import CMP
from pyshmem.runtime import _native
from pyshmem.runtime.arguments import delta_to, refuse_dtype, word
from pyshmem.runtime.errors import ArgumentError, refuse, refuse_timeout
from pyshmem.runtime.heap import Heap, cpu
from pyshmem.runtime.job import job

_TICKET = 1 << 32
_HALF, _WHOLE = _TICKET - 1, (1 << 64) - 1


def set_lock(lock: Any) -> None:
    """Wait until this PE's turn has come, and acquire the lock. PEs are served in the order of their calls.

    lock: one symmetric int64 element, 0 when it is created; it may be an element of an array.
    Order: what the previous owner did before clear_lock is visible on return.
    Errors: WaitTimeoutError, after which the lock cannot be used any more; NotSymmetricError, ArgumentError, DtypeError,
        NotInitializedError.
    Spec: 9.12 SHMEM_SET_LOCK.
    """
    heap, home = _home("set_lock", lock)
    ticket = _amo(heap, "fetch_add", home, _TICKET) >> 32
    try:
        _await(heap, home, ticket)
    except TimeoutError:
        served = _amo(heap, "fetch", home) & _HALF
        refuse_timeout("set_lock", "lock", f"ticket {ticket}, and still {served} is served", "its owner's clear_lock")


def test_lock(lock: Any) -> bool:
    """Acquire the lock if it is free. Returns False if it was acquired and True if another PE holds it, as in C.

    lock: one symmetric int64 element, 0 when it is created; it may be an element of an array.
    Order: what the previous owner did before clear_lock is visible if the lock was acquired. The call never waits.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.12 SHMEM_TEST_LOCK.
    """
    heap, home = _home("test_lock", lock)
    seen = _amo(heap, "fetch", home)
    if seen >> 32 != seen & _HALF:
        return True
    return _amo(heap, "compare_swap", home, (seen + _TICKET) & _WHOLE, seen) != seen


def clear_lock(lock: Any) -> None:
    """Complete all operations of this PE, as quiet does, then pass the lock to the PE that asked for it next.

    lock: one symmetric int64 element, 0 when it is created; it may be an element of an array.
    Order: the next owner sees what this PE has stored, put and updated on any PE.
    Errors: ArgumentError for a lock that no PE holds; NotSymmetricError, DtypeError, NotInitializedError.
    Spec: 9.12 SHMEM_CLEAR_LOCK.
    """
    heap, home = _home("clear_lock", lock)
    seen = _amo(heap, "fetch", home)
    if seen >> 32 == seen & _HALF:
        refuse(ArgumentError, "clear_lock", "lock", "a lock that is free", "one that this PE has set")
    ordering.quiet()
    if heap is cpu:
        _native.fetch_add_uint32(home, 1)  # the lower half alone: it wraps around without a carry
    else:
        heap.amo("fetch_add", torch.uint32, home, 1)


class Lock:
    """A lock with a symmetric word of its own.

    ``with lock:`` holds it. Creating and destroying a lock is collective over TEAM_WORLD.
    """

    def __init__(self) -> None:
        self.word = arrays.zeros(1, dtype=torch.int64)

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock and return True; with blocking false, return at once whether it was acquired.

        Errors: WaitTimeoutError, NotInitializedError, NotSymmetricError after destroy.
        """
        if not blocking:
            return not test_lock(self.word)
        set_lock(self.word)
        return True

    def release(self) -> None:
        """Complete all operations of this PE, then pass the lock on. Errors: ArgumentError for a lock that no PE holds."""
        clear_lock(self.word)

    def destroy(self) -> None:
        """Free the lock's word. Collective over TEAM_WORLD. Errors: NotSymmetricError if it is already freed."""
        memory.free(self.word)

    def __enter__(self) -> Lock:
        set_lock(self.word)
        return self

    def __exit__(self, *exception: Any) -> None:
        clear_lock(self.word)


def _home(routine: str, lock: Any) -> tuple[Heap, int]:
    """The heap and where the lock on PE 0 is seen from here."""
    heap, address, dtype = word(routine, "lock", lock)
    if dtype is not torch.int64:
        refuse_dtype(routine, "lock", dtype, (torch.int64,))
    return heap, address + delta_to(routine, 0, heap)


def _amo(heap: Heap, op: str, address: int, value: int = 0, cond: int = 0) -> int:
    """The word before, as an unsigned number."""
    if heap is not cpu:
        return int(heap.amo(op, torch.uint64, address, value, cond)) & _WHOLE
    values = {"fetch": (), "fetch_add": (value,), "compare_swap": (cond, value)}[op]
    return int(getattr(_native, f"{op}_uint64")(address, *values))


def _await(heap: Heap, home: int, ticket: int) -> None:
    """Errors: TimeoutError."""
    if heap is cpu:
        _native.wait_uint32(home, CMP.EQ, ticket, job.timeout, job.spins)
        return
    deadline = time.monotonic() + (job.timeout or math.inf)
    while _amo(heap, "fetch", home) & _HALF != ticket:
        if time.monotonic() > deadline:
            raise TimeoutError
