"""Signals in kernels. Spec: OpenSHMEM 1.6, 9.10."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import translate

SIGNAL_SET = tl.constexpr(0)
SIGNAL_ADD = tl.constexpr(1)


@jit
def put_signal(
    ctx: Any, dest: Any, source: Any, nelems: Any, sig_addr: Any, signal: Any, sig_op: tl.constexpr, pe: Any
) -> None:
    """Copy ``source[:nelems]`` to ``dest`` on ``pe``, then update the signal there. The whole program calls it at once.

    dest, source: pointers to one dtype; dest symmetric, given as this PE's address; source any, free again on return.
    sig_addr: symmetric, uint64, outside dest[:nelems].  sig_op: SIGNAL_SET or SIGNAL_ADD, constexpr.
    nelems, pe: run-time ints; nelems 0 moves the signal alone; pe counts in ctx's team.
    Order: a PE that sees the signal by signal_wait_until, wait_until or test sees this payload, and nothing put earlier
        unless a fence stood between; two put_signals to one PE may land in either order.
    Errors: wrong pointees, an address or a pe out of range.  Spec: OpenSHMEM 1.6, 9.10 SHMEM_PUT_SIGNAL.
    """
    arch.check(ctx, "put_signal", "dest", dest, pe, count=nelems)
    arch.check(ctx, "put_signal", "sig_addr", sig_addr, pe)
    arch.expect("put_signal", "sig_addr", sig_addr, tl.uint64)
    arch.expect("put_signal", "source", source, dest.dtype.element_ty)
    arch.copy(translate(ctx, dest, pe), source, nelems)
    update("put_signal", translate(ctx, sig_addr, pe), signal, sig_op)


@jit
def signal_set(ctx: Any, sig_addr: Any, signal: Any, pe: Any) -> None:
    """Set the signal on ``pe``, after what a fence ordered before. sig_addr: symmetric, uint64. Spec: 9.10 SHMEM_SIGNAL_SET."""
    arch.check(ctx, "signal_set", "sig_addr", sig_addr, pe)
    arch.expect("signal_set", "sig_addr", sig_addr, tl.uint64)
    update("signal_set", translate(ctx, sig_addr, pe), signal, SIGNAL_SET)


@jit
def signal_add(ctx: Any, sig_addr: Any, signal: Any, pe: Any) -> None:
    """Add to the signal on ``pe``, after what a fence ordered before. sig_addr: symmetric, uint64. Spec: 9.10 SHMEM_SIGNAL_ADD."""
    arch.check(ctx, "signal_add", "sig_addr", sig_addr, pe)
    arch.expect("signal_add", "sig_addr", sig_addr, tl.uint64)
    update("signal_add", translate(ctx, sig_addr, pe), signal, SIGNAL_ADD)


@jit
def signal_fetch(ctx: Any, sig_addr: Any) -> Any:
    """The signal here, read as an atomic. sig_addr: symmetric, uint64. Spec: 9.10 SHMEM_SIGNAL_FETCH."""
    arch.check(ctx, "signal_fetch", "sig_addr", sig_addr, None)
    arch.expect("signal_fetch", "sig_addr", sig_addr, tl.uint64)
    return arch.fetch(sig_addr)


@jit
def signal_wait_until(ctx: Any, sig_addr: Any, cmp: Any, value: Any) -> Any:
    """Wait until the signal here compares so with ``value``; the value seen is returned. The whole program waits.

    sig_addr: symmetric, uint64.  Order: an acquire: the payload of the put_signal that was seen is readable.
    Errors: address, pointee, a wait over PYSHMEM_WAIT_TIMEOUT.  Spec: 9.10 SHMEM_SIGNAL_WAIT_UNTIL.
    """
    arch.check(ctx, "signal_wait_until", "sig_addr", sig_addr, None)
    arch.expect("signal_wait_until", "sig_addr", sig_addr, tl.uint64)
    return arch.wait("signal_wait_until", "sig_addr", sig_addr, cmp, value)


@jit
def update(routine: tl.constexpr, sig_addr: Any, signal: Any, sig_op: tl.constexpr) -> None:
    """Set or add, as a release."""
    value = arch.fit(routine, "signal", signal, sig_addr)
    if sig_op == SIGNAL_ADD:
        tl.atomic_add(sig_addr, value, sem="release", scope="sys")
    else:
        arch.exchange(sig_addr, value)
