"""Signals in kernels. Spec: OpenSHMEM 1.6, 9.8."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit

SIGNAL_SET = tl.constexpr(0)
SIGNAL_ADD = tl.constexpr(1)


@jit
def put_signal(ctx, dest, source, nelems, sig_addr, signal, sig_op: tl.constexpr, pe):
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
def put_signal_nbi(ctx, dest, source, nelems, sig_addr, signal, sig_op: tl.constexpr, pe):
    """put_signal: what the signal waits for is also what frees ``source``. Spec: 9.8 SHMEM_PUT_SIGNAL_NBI."""
    send(ctx, "put_signal_nbi", dest, source, nelems, sig_addr, signal, sig_op, pe)


@jit
def send(ctx, routine: tl.constexpr, dest, source, nelems, sig_addr, signal, sig_op: tl.constexpr, pe):
    """put_signal, under any name."""
    arch.check_one(ctx, routine, "dest", dest, pe, nelems)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    check_signal(ctx, routine, sig_addr, pe)
    arch.check_apart(routine, sig_addr, dest, nelems)
    arch.check_choice(routine, "sig_op", sig_op, "SIGNAL_SET, SIGNAL_ADD")
    value = arch.fit(routine, "signal", signal, sig_addr)
    transport.put(ctx, dest, source, nelems, pe)
    update(ctx, sig_addr, value, sig_op, pe)


@jit
def signal_set(ctx, sig_addr, signal, pe):
    """Set the signal on ``pe``. All else: signal_add. Spec: 9.8 SHMEM_SIGNAL_SET."""
    check_signal(ctx, "signal_set", sig_addr, pe)
    transport.set_signal(ctx, sig_addr, arch.fit("signal_set", "signal", signal, sig_addr), pe)


@jit
def signal_add(ctx, sig_addr, signal, pe):
    """Add to the signal on ``pe``.

    sig_addr: one symmetric pointer to uint64, this PE's address.  signal: an integer.
    Order: a release of all that the calling program has stored and put before.  Errors: put_signal's.
    Spec: 9.8 SHMEM_SIGNAL_ADD.
    """
    check_signal(ctx, "signal_add", sig_addr, pe)
    transport.add_signal(ctx, sig_addr, arch.fit("signal_add", "signal", signal, sig_addr), pe)


@jit
def signal_fetch(ctx, sig_addr):
    """The signal here, read as an atomic. All else: signal_wait_until, but it never waits. Spec: 9.8 SHMEM_SIGNAL_FETCH."""
    check_signal(ctx, "signal_fetch", sig_addr, None)
    return arch.fetch(ctx, sig_addr)


@jit
def signal_wait_until(ctx, sig_addr, cmp, value):
    """Wait until the signal here compares so with ``value``; the value seen is returned. The whole program waits.

    sig_addr: one symmetric pointer to uint64.  cmp: CMP_EQ ... CMP_LE, constexpr.
    Order: an acquire: the payload of the put_signal that was seen is readable.
    Errors: address, pointee, a wait over PYSHMEM_WAIT_TIMEOUT.  Spec: 9.10 SHMEM_SIGNAL_WAIT_UNTIL.
    """
    check_signal(ctx, "signal_wait_until", sig_addr, None)
    return arch.wait(ctx, "signal_wait_until", "sig_addr", sig_addr, cmp, value)


@jit
def check_signal(ctx, routine: tl.constexpr, sig_addr, pe):
    """Errors: what a signal's address may be refused for."""
    arch.check_one(ctx, routine, "sig_addr", sig_addr, pe)
    arch.expect(routine, "sig_addr", sig_addr, tl.uint64)


@jit
def update(ctx, sig_addr, value, sig_op: tl.constexpr, pe):
    """Set or add, as a release of all that the program has stored."""
    if sig_op == SIGNAL_ADD:
        transport.add_signal(ctx, sig_addr, value, pe)
    else:
        transport.set_signal(ctx, sig_addr, value, pe)
