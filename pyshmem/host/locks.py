"""Locks: one symmetric int64 word each, zero at first, served first come, first served. Spec: OpenSHMEM 1.6, 9.12.

The word on PE 0 of the world is the lock: the upper half is the next ticket, the lower half the ticket that is served. The
words on the other PEs are not used.
"""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.host import arrays, memory, ordering
from pyshmem.host.wait import CMP
from pyshmem.runtime.arguments import refuse_dtype
from pyshmem.runtime.errors import ArgumentError, refuse, refuse_timeout
from pyshmem.transport.routes import word_on

_TICKET = 1 << 32
_WORD = torch.uint64
_HALF, _WHOLE = _TICKET - 1, (1 << 64) - 1


def set_lock(lock: Any) -> None:
    """Wait for the turn of this PE, and have the lock.

    lock: one symmetric int64, an element of an array too.  Order: what its last owner did before clear_lock is seen.
    Errors: WaitTimeoutError, and then the lock is never free again; NotSymmetricError, ArgumentError, DtypeError,
    NotInitializedError.  Spec: 9.12 SHMEM_SET_LOCK.
    """
    to, home = _home("set_lock", lock)
    ticket = to.atomics["fetch_add"][_WORD](home, _TICKET) >> 32
    try:
        to.await_remote(home, torch.uint32, CMP.EQ, ticket)
    except TimeoutError:
        served = to.atomics["fetch"][_WORD](home) & _HALF
        refuse_timeout("set_lock", "lock", f"ticket {ticket}, and still {served} is served", "its owner's clear_lock")


def test_lock(lock: Any) -> bool:
    """Take the lock if it is free: False then, as in C, and True where another has it. Never waits.

    Arguments, order and errors: set_lock.  Spec: 9.12 SHMEM_TEST_LOCK.
    """
    to, home = _home("test_lock", lock)
    seen = to.atomics["fetch"][_WORD](home)
    if seen >> 32 != seen & _HALF:
        return True
    taken: bool = to.atomics["compare_swap"][_WORD](home, seen, (seen + _TICKET) & _WHOLE) == seen
    return not taken


def clear_lock(lock: Any) -> None:
    """Complete all this PE has started, as quiet does, then give the lock to the PE that asked for it next.

    Arguments: set_lock.  Order: the next owner sees what this PE has stored, put and updated on any PE.
    Errors: set_lock's, ArgumentError for a lock that nobody has.  Spec: 9.12 SHMEM_CLEAR_LOCK.
    """
    to, home = _home("clear_lock", lock)
    seen = to.atomics["fetch"][_WORD](home)
    if seen >> 32 == seen & _HALF:
        refuse(ArgumentError, "clear_lock", "lock", "a lock that is free", "one that this PE has set")
    ordering.quiet()
    to.atomics["fetch_add"][torch.uint32](home, 1)  # the lower half alone: it wraps around without a carry


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


def _home(routine: str, lock: Any) -> tuple[Any, int]:
    """The route to PE 0, and the lock's place there."""
    to, place, dtype = word_on(routine, "lock", lock, 0)
    if dtype is not torch.int64:
        refuse_dtype(routine, "lock", dtype, (torch.int64,))
    return to, place
