"""Signals in kernels. Spec: OpenSHMEM 1.6, 9.8."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit, translate
from pyshmem.device.context import DeviceContext

SIGNAL_SET = tl.constexpr(0)
SIGNAL_ADD = tl.constexpr(1)


@jit
def put_signal(
    ctx: DeviceContext,
    dest: tl.tensor,
    source: tl.tensor,
    nelems: tl.tensor,
    sig_addr: tl.tensor,
    signal: tl.tensor,
    sig_op: tl.constexpr,
    pe: tl.tensor,
) -> None:
    """Copy ``source[:nelems]`` to ``dest`` on ``pe``, then update the signal there. The whole program calls it at once.

    dest, source: pointers to one dtype; dest symmetric, given as this PE's address; source any, free again on return.
    sig_addr: symmetric, uint64, outside dest[:nelems].  signal: an integer.
    sig_op: SIGNAL_SET or SIGNAL_ADD, constexpr.  nelems, pe: run-time ints; nelems 0 moves the signal alone.
    Order: a PE that sees the signal by signal_wait_until, wait_until or test sees this payload, and nothing put earlier
        unless a fence stood between; two put_signals to one PE may land in either order.
    Errors: wrong pointees, an address or a pe out of range.  Spec: OpenSHMEM 1.6, 9.8 SHMEM_PUT_SIGNAL.
    """
    send(ctx, "put_signal", dest, source, nelems, sig_addr, signal, sig_op, pe)


@jit
def put_signal_nbi(
    ctx: DeviceContext,
    dest: tl.tensor,
    source: tl.tensor,
    nelems: tl.tensor,
    sig_addr: tl.tensor,
    signal: tl.tensor,
    sig_op: tl.constexpr,
    pe: tl.tensor,
) -> None:
    """put_signal: what the signal waits for is also what frees ``source``. Spec: 9.8 SHMEM_PUT_SIGNAL_NBI."""
    send(ctx, "put_signal_nbi", dest, source, nelems, sig_addr, signal, sig_op, pe)


@jit
def send(
    ctx: DeviceContext,
    routine: tl.constexpr,
    dest: tl.tensor,
    source: tl.tensor,
    nelems: tl.tensor,
    sig_addr: tl.tensor,
    signal: tl.tensor,
    sig_op: tl.constexpr,
    pe: tl.tensor,
) -> None:
    """put_signal, under any name."""
    arch.check_one(ctx, routine, "dest", dest, pe, nelems)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    check_signal(ctx, routine, sig_addr, pe)
    arch.check_apart(routine, sig_addr, dest, nelems)
    arch.check_choice(routine, "sig_op", sig_op, "SIGNAL_SET, SIGNAL_ADD")
    value = arch.fit(routine, "signal", signal, sig_addr)
    arch.copy(ctx, translate(ctx, dest, pe), source, nelems)
    update(ctx, translate(ctx, sig_addr, pe), value, sig_op)


@jit
def signal_set(ctx: DeviceContext, sig_addr: tl.tensor, signal: tl.tensor, pe: tl.tensor) -> None:
    """Set the signal on ``pe``. All else: signal_add. Spec: 9.8 SHMEM_SIGNAL_SET."""
    check_signal(ctx, "signal_set", sig_addr, pe)
    update(ctx, translate(ctx, sig_addr, pe), arch.fit("signal_set", "signal", signal, sig_addr), SIGNAL_SET)


@jit
def signal_add(ctx: DeviceContext, sig_addr: tl.tensor, signal: tl.tensor, pe: tl.tensor) -> None:
    """Add to the signal on ``pe``.

    sig_addr: one symmetric pointer to uint64, this PE's address.  signal: an integer.
    Order: a release of all that the calling program has stored and put before.  Errors: put_signal's.
    Spec: 9.8 SHMEM_SIGNAL_ADD.
    """
    check_signal(ctx, "signal_add", sig_addr, pe)
    update(ctx, translate(ctx, sig_addr, pe), arch.fit("signal_add", "signal", signal, sig_addr), SIGNAL_ADD)


@jit
def signal_fetch(ctx: DeviceContext, sig_addr: tl.tensor) -> tl.tensor:
    """The signal here, read as an atomic. All else: signal_wait_until, but it never waits. Spec: 9.8 SHMEM_SIGNAL_FETCH."""
    check_signal(ctx, "signal_fetch", sig_addr, None)
    return arch.fetch(ctx, sig_addr)


@jit
def signal_wait_until(ctx: DeviceContext, sig_addr: tl.tensor, cmp: tl.tensor, value: tl.tensor) -> tl.tensor:
    """Wait until the signal here compares so with ``value``; the value seen is returned. The whole program waits.

    sig_addr: one symmetric pointer to uint64.  cmp: CMP_EQ ... CMP_LE, constexpr.
    Order: an acquire: the payload of the put_signal that was seen is readable.
    Errors: address, pointee, a wait over PYSHMEM_WAIT_TIMEOUT.  Spec: 9.10 SHMEM_SIGNAL_WAIT_UNTIL.
    """
    check_signal(ctx, "signal_wait_until", sig_addr, None)
    return arch.wait(ctx, "signal_wait_until", "sig_addr", sig_addr, cmp, value)


@jit
def check_signal(ctx: DeviceContext, routine: tl.constexpr, sig_addr: tl.tensor, pe: tl.tensor) -> None:
    """Errors: what a signal's address may be refused for."""
    arch.check_one(ctx, routine, "sig_addr", sig_addr, pe)
    arch.expect(routine, "sig_addr", sig_addr, tl.uint64)


@jit
def update(ctx: DeviceContext, sig_addr: tl.tensor, value: tl.tensor, sig_op: tl.constexpr) -> None:
    """Set or add, as a release of all that the program has stored."""
    if sig_op == SIGNAL_ADD:
        arch.add_signal(ctx, sig_addr, value)
    else:
        arch.set_signal(ctx, sig_addr, value)
