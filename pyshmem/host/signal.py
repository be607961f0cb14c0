"""Signals: a put that says when it has arrived. Spec: OpenSHMEM 1.6, 9.8."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch

from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.host.wait import CMP, wait_word
from pyshmem.runtime import _native
from pyshmem.runtime._native import locate
from pyshmem.runtime.arguments import refuse_dtype, scalar, transfer, word
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.heap import views
from pyshmem.transport.routes import routed, word_on

_NAMES = ("target", "source")


class SIGNAL(IntEnum):
    """What put_signal does to the signal word."""

    SET = 0
    ADD = 1


_UPDATES = {SIGNAL.SET: "set", SIGNAL.ADD: "add"}


def put_signal(
    target: Any,
    source: Any,
    pe: int,
    signal: Any,
    value: int,
    sigop: int,
    size: int | None = None,
    ctx: Ctx | None = None,
) -> None:
    """Copy ``source`` to ``target`` on ``pe`` as put does, then set the signal there to ``value`` or add it.

    target, source: put's.  size: put's; 0 moves the signal alone.
    signal: one symmetric uint64 outside target.  sigop: SIGNAL.SET or SIGNAL.ADD.
    Order: a PE that sees the signal by signal_wait_until, wait_until or test sees this payload, and nothing put earlier
    unless a fence stood between.  Errors: put's.  Spec: 9.8 SHMEM_PUT_SIGNAL.
    """
    _put_signal("put_signal", target, source, pe, signal, value, sigop, size, ctx)


def put_signal_nbi(
    target: Any,
    source: Any,
    pe: int,
    signal: Any,
    value: int,
    sigop: int,
    size: int | None = None,
    ctx: Ctx | None = None,
) -> None:
    """put_signal that may return before source is free again: quiet makes it so. All else: put_signal.

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
    _require_signal(routine, dtype)
    update = _UPDATES.get(sigop) if isinstance(sigop, int) else None  # type: ignore[call-overload]
    if update is None:
        refuse(ArgumentError, routine, "sigop", repr(sigop), "SIGNAL.SET or SIGNAL.ADD")
    if place - 8 < word_place < place + nbytes:
        refuse(ArgumentError, routine, "signal", "an element of target", "a word outside what is copied")
    value = scalar(routine, "value", value, torch.uint64)
    to.put_signal(place, src, nbytes, home, update, word_place, value)


def signal_fetch(signal: Any) -> int:
    """The signal here, read as an atomic. signal: one symmetric uint64.

    Order: an acquire, as signal_wait_until.  Errors: signal_wait_until's, but no time-out.  Spec: 9.8 SHMEM_SIGNAL_FETCH.
    """
    heap, address, dtype = word("signal_fetch", "signal", signal)
    _require_signal("signal_fetch", dtype)
    return int(_native.fetch_uint64(heap.direct.look(address, 8)))


def signal_set(signal: Any, value: int, pe: int, ctx: Ctx | None = None) -> None:
    """Set the signal on ``pe`` to ``value``, an int from 0 to 2**64 - 1.

    signal: one symmetric uint64.  Order: atomic; seen on pe after what a fence ordered before.  Errors: put_signal's.
    Spec: 9.8 SHMEM_SIGNAL_SET.
    """
    _update_signal("signal_set", signal, value, pe, ctx, "set")


def signal_add(signal: Any, value: int, pe: int, ctx: Ctx | None = None) -> None:
    """Add ``value`` to the signal on ``pe``. Arguments, order and errors: signal_set. Spec: 9.8 SHMEM_SIGNAL_ADD."""
    _update_signal("signal_add", signal, value, pe, ctx, "add")


def _update_signal(routine: str, signal: Any, value: int, pe: int, ctx: Ctx | None, update: str) -> None:
    if ctx is not None:
        pe = world_pe(routine, ctx, pe)
    to, place, dtype = word_on(routine, "signal", signal, pe)
    _require_signal(routine, dtype)
    to.signal(update, place, scalar(routine, "value", value, torch.uint64))


def signal_wait_until(signal: Any, cmp: CMP | str, value: int) -> int:
    """Wait until the signal here compares so with ``value``; the value seen is returned.

    signal: one symmetric uint64.  cmp: wait_until's.
    Order: an acquire: the payload of the put_signal that was seen is readable.  Errors: wait_until's.
    Spec: 9.10 SHMEM_SIGNAL_WAIT_UNTIL.
    """
    return wait_word("signal_wait_until", "signal", signal, cmp, value, (torch.uint64,))


def _require_signal(routine: str, dtype: Any) -> None:
    if dtype is not torch.uint64:
        refuse_dtype(routine, "signal", dtype, (torch.uint64,))
