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
    """Wait for the turn of this PE, and have the lock.

    lock: one symmetric int64, an element of an array too.  Order: what its last owner did before clear_lock is seen.
    Errors: WaitTimeoutError, and then the lock is never free again; NotSymmetricError, ArgumentError, DtypeError,
    NotInitializedError.  Spec: 9.12 SHMEM_SET_LOCK.
    """
    heap, home = _home("set_lock", lock)
    ticket = _amo(heap, "fetch_add", home, _TICKET) >> 32
    try:
        _await(heap, home, ticket)
    except TimeoutError:
        served = _amo(heap, "fetch", home) & _HALF
        refuse_timeout("set_lock", "lock", f"ticket {ticket}, and still {served} is served", "its owner's clear_lock")


def test_lock(lock: Any) -> bool:
    """Take the lock if it is free: False then, as in C, and True where another has it. Never waits.

    Arguments, order and errors: set_lock.  Spec: 9.12 SHMEM_TEST_LOCK.
    """
    heap, home = _home("test_lock", lock)
    seen = _amo(heap, "fetch", home)
    if seen >> 32 != seen & _HALF:
        return True
    return _amo(heap, "compare_swap", home, (seen + _TICKET) & _WHOLE, seen) != seen


def clear_lock(lock: Any) -> None:
    """Complete all this PE has started, as quiet does, then give the lock to the PE that asked for it next.

    Arguments: set_lock.  Order: the next owner sees what this PE has stored, put and updated on any PE.
    Errors: set_lock's, ArgumentError for a lock that nobody has.  Spec: 9.12 SHMEM_CLEAR_LOCK.
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
    """A lock with a word of its own; ``with lock:`` has it meanwhile. Making and destroying one is collective."""

    def __init__(self) -> None:
        self.word = arrays.zeros(1, dtype=torch.int64)

    def acquire(self, blocking: bool = True) -> bool:
        """set_lock, or test_lock where blocking is false: whether this PE has it now."""
        if not blocking:
            return not test_lock(self.word)
        set_lock(self.word)
        return True

    def release(self) -> None:
        """clear_lock."""
        clear_lock(self.word)

    def destroy(self) -> None:
        """Free the word."""
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
