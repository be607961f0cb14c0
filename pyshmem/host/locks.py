"""Locks: one symmetric int64 word each, initially 0, first come, first served. Spec: OpenSHMEM 1.6, 9.12.

The word on PE 0 of the world is the lock: its upper half is the next ticket, its lower half the ticket being served. The
words on the other PEs are not used.
"""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.host import allocation, arrays, ordering
from pyshmem.host.wait import CMP
from pyshmem.memory.arguments import Array, refuse_dtype
from pyshmem.transport.near_or_far import word_on

__all__ = ["Lock", "clear_lock", "set_lock", "test_lock"]

_TICKET = 1 << 32
_WORD = torch.uint64
_HALF, _WHOLE = _TICKET - 1, (1 << 64) - 1


def set_lock(lock: Array) -> None:
    """Wait until this PE's turn has come, and acquire the lock. PEs are served in the order of their calls.

    lock: one symmetric int64 element, 0 when it is created; it may be an element of an array.
    Order: what the previous owner did before clear_lock is visible on return.
    Errors: WaitTimeoutError, after which the lock cannot be used any more; NotSymmetricError, ArgumentError, DtypeError,
        NotInitializedError.
    Spec: 9.12 SHMEM_SET_LOCK.
    """
    to, home = _home("set_lock", lock)
    ticket = to.atomics["fetch_add"][_WORD](home, _TICKET) >> 32
    try:
        to.await_remote(home, torch.uint32, CMP.EQ, ticket)
    except TimeoutError:
        served = to.atomics["fetch"][_WORD](home) & _HALF
        refuse_timeout("set_lock", "lock", f"ticket {ticket}, and still {served} is served", "its owner's clear_lock")


def test_lock(lock: Array) -> bool:
    """Acquire the lock if it is free. Returns False if it was acquired and True if another PE holds it, as in C.

    lock: one symmetric int64 element, 0 when it is created; it may be an element of an array.
    Order: what the previous owner did before clear_lock is visible if the lock was acquired. The call never waits.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.12 SHMEM_TEST_LOCK.
    """
    to, home = _home("test_lock", lock)
    seen = to.atomics["fetch"][_WORD](home)
    if seen >> 32 != seen & _HALF:
        return True
    taken: bool = to.atomics["compare_swap"][_WORD](home, seen, (seen + _TICKET) & _WHOLE) == seen
    return not taken


def clear_lock(lock: Array) -> None:
    """Complete all operations of this PE, as quiet does, then pass the lock to the PE that asked for it next.

    lock: one symmetric int64 element, 0 when it is created; it may be an element of an array.
    Order: the next owner sees what this PE has stored, put and updated on any PE.
    Errors: ArgumentError for a lock that no PE holds; NotSymmetricError, DtypeError, NotInitializedError.
    Spec: 9.12 SHMEM_CLEAR_LOCK.
    """
    to, home = _home("clear_lock", lock)
    seen = to.atomics["fetch"][_WORD](home)
    if seen >> 32 == seen & _HALF:
        refuse(ArgumentError, "clear_lock", "lock", "a lock that is free", "one that this PE has set")
    ordering.quiet()
    to.atomics["fetch_add"][torch.uint32](home, 1)  # the lower half alone: it wraps around without a carry


class Lock:
    """A lock with a symmetric word of its own.

    ``with lock:`` holds it. Creating and destroying a lock is collective over TEAM_WORLD.
    """

    def __init__(self) -> None:
        self.word = arrays.zeros(1, dtype=torch.int64)
        self._destroyed = False

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
        """Free the lock's word. Collective over TEAM_WORLD. Does nothing for a lock that is destroyed."""
        if not self._destroyed:
            self._destroyed = True
            allocation.free(self.word)

    def __enter__(self) -> Lock:
        set_lock(self.word)
        return self

    def __exit__(self, *exception: Any) -> None:
        clear_lock(self.word)


def _home(routine: str, lock: Any) -> tuple[Any, int]:
    """The route to PE 0, and the place of the lock there."""
    to, place, dtype = word_on(routine, "lock", lock, 0)
    if dtype is not torch.int64:
        refuse_dtype(routine, "lock", dtype, (torch.int64,))
    return to, place
