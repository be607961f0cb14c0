"""Signals: a put followed by an update of a flag on the target PE. Spec: OpenSHMEM 1.6, 9.8."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch

from pyshmem.base.comparisons import Sign
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.host.wait import CMP, wait_word
from pyshmem.memory.arguments import Array, refuse_dtype, scalar, transfer, word
from pyshmem.memory.heap import views
from pyshmem.native import _native
from pyshmem.native._native import locate
from pyshmem.transport.near_or_far import routed, word_on

__all__ = ["SIGNAL", "put_signal", "put_signal_nbi", "signal_add", "signal_fetch", "signal_set", "signal_wait_until"]

_NAMES = ("target", "source")


class SIGNAL(IntEnum):
    """The operations of put_signal on the signal word."""

    SET = 0
    ADD = 1


_UPDATES: dict[int, str] = {SIGNAL.SET: "set", SIGNAL.ADD: "add"}


def put_signal(
    target: Array,
    source: Array,
    pe: int,
    signal: Array,
    value: int,
    sigop: int,
    size: int | None = None,
    ctx: Ctx | None = None,
) -> None:
    """Copy the first ``size`` elements of ``source`` to ``target`` on ``pe``, then update ``signal`` there.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: any contiguous torch, NumPy or CuPy array; it may be reused on return.
    signal: one symmetric uint64 element outside target. sigop: SIGNAL.SET writes ``value``, SIGNAL.ADD adds it.
    size: the number of elements; None means all of source, 0 updates the signal alone.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: a PE that sees the signal with signal_wait_until, wait_until or test sees these data, and earlier puts only if a
        fence or quiet was called in between.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.8 SHMEM_PUT_SIGNAL.
    """
    _put_signal("put_signal", target, source, pe, signal, value, sigop, size, ctx)


def put_signal_nbi(
    target: Array,
    source: Array,
    pe: int,
    signal: Array,
    value: int,
    sigop: int,
    size: int | None = None,
    ctx: Ctx | None = None,
) -> None:
    """Copy ``size`` elements of ``source`` to ``target`` on ``pe``, then update ``signal`` there; source may be read later.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: any contiguous torch, NumPy or CuPy array; it may be reused after quiet.
    signal: one symmetric uint64 element outside target. sigop: SIGNAL.SET writes ``value``, SIGNAL.ADD adds it.
    size: the number of elements; None means all of source, 0 updates the signal alone.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: complete after quiet. A PE that sees the signal sees these data, and earlier puts only if a fence or quiet was
        called in between.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.8 SHMEM_PUT_SIGNAL_NBI.
    """
    _put_signal("put_signal_nbi", target, source, pe, signal, value, sigop, size, ctx)


def _put_signal(
    routine: str,
    target: Any,
    source: Any,
    pe: int,
    signal: Any,
    value: int,
    sigop: int,
    size: int | None,
    ctx: Ctx | None,
) -> None:
    if ctx is not None:
        pe = world_pe(routine, ctx, pe)
    found = locate(views, target, source, size, pe)
    if found is None:
        found = routed(routine, transfer(routine, _NAMES, target, source, size), pe)
    to, place, src, nbytes = found
    home, word_place, dtype = word_on(routine, "signal", signal, pe)
    require_signal(routine, dtype)
    update = update_of(routine, sigop)
    if place - 8 < word_place < place + nbytes:
        refuse(ArgumentError, routine, "signal", "an element of target", "a word outside what is copied")
    value = _signal_value(routine, value)
    to.put_signal(place, src, nbytes, home, update, word_place, value)


def signal_fetch(signal: Array) -> int:
    """Return the local ``signal``, read atomically.

    signal: one symmetric uint64 element.
    Order: an acquire: the data of the put_signal that was seen are visible on return.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.8 SHMEM_SIGNAL_FETCH.
    """
    heap, address, dtype = word("signal_fetch", "signal", signal)
    require_signal("signal_fetch", dtype)
    return int(_native.fetch_uint64(heap.near.look(address, 8)))


def signal_set(signal: Array, value: int, pe: int, ctx: Ctx | None = None) -> None:
    """Set ``signal`` on ``pe`` to ``value``, atomically.

    signal: one symmetric uint64 element.
    value: an int from 0 to 2**64 - 1.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: a PE that sees the new value also sees what an earlier fence or quiet has ordered.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.8 SHMEM_SIGNAL_SET.
    """
    _update_signal("signal_set", signal, value, pe, ctx, "set")


def signal_add(signal: Array, value: int, pe: int, ctx: Ctx | None = None) -> None:
    """Add ``value`` to ``signal`` on ``pe``, atomically.

    signal: one symmetric uint64 element.
    value: an int from 0 to 2**64 - 1.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: a PE that sees the new value also sees what an earlier fence or quiet has ordered.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.8 SHMEM_SIGNAL_ADD.
    """
    _update_signal("signal_add", signal, value, pe, ctx, "add")


def _update_signal(routine: str, signal: Any, value: int, pe: int, ctx: Ctx | None, update: str) -> None:
    if ctx is not None:
        pe = world_pe(routine, ctx, pe)
    to, place, dtype = word_on(routine, "signal", signal, pe)
    require_signal(routine, dtype)
    to.signal(update, place, _signal_value(routine, value))


def signal_wait_until(signal: Array, cmp: CMP | Sign, value: int) -> int:
    """Wait until the comparison of the local ``signal`` with ``value`` is true; return the signal's value.

    signal: one symmetric uint64 element.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    Order: an acquire: the data of the put_signal that was seen are visible on return.
    Errors: WaitTimeoutError, NotSymmetricError, ArgumentError, DtypeError, NotInitializedError.
    Spec: 9.10 SHMEM_SIGNAL_WAIT_UNTIL.
    """
    return wait_word("signal_wait_until", "signal", signal, cmp, value, (torch.uint64,))


def _signal_value(routine: str, value: Any) -> Any:
    if type(value) is int and 0 <= value < 1 << 64:
        return value
    return scalar(routine, "value", value, torch.uint64)


def require_signal(routine: str, dtype: Any) -> None:
    if dtype is not torch.uint64:
        refuse_dtype(routine, "signal", dtype, (torch.uint64,))


def update_of(routine: str, sigop: Any) -> str:
    """Return the name of the update: "set" or "add". Errors: ArgumentError."""
    update = _UPDATES.get(sigop) if isinstance(sigop, int) else None
    if update is None:
        refuse(ArgumentError, routine, "sigop", repr(sigop), "SIGNAL.SET or SIGNAL.ADD")
    return update
