"""Signals in kernels. Spec: OpenSHMEM 1.6, 9.8."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.templates import documented
from pyshmem.device.wait import wait

SIGNAL_SET = tl.constexpr(0)
SIGNAL_ADD = tl.constexpr(1)

PUT_SIGNAL = """Copy ``source[:nelems]`` to ``dest`` on ``pe``, then update the signal there. All threads call it together.

ctx: a device context.  pe, nelems: ints; pe counts in ctx's team; with 0 elements only the signal is updated.
dest: one symmetric pointer, given as this PE's address.  source: one pointer to dest's dtype, in any memory. {free}
sig_addr: one symmetric pointer to uint64, outside dest[:nelems].  signal: an integer.  sig_op: SIGNAL_SET or SIGNAL_ADD.
Order: a PE that sees the signal in a wait or a test sees this data. It sees data of earlier puts only if a fence stood
    between. Two put_signals to one PE may arrive in either order.
{refused}
Spec: OpenSHMEM 1.6, 9.8 SHMEM_{NAME}.
"""
UPDATE = """{what} the signal on ``pe``.

ctx: a device context.  pe: an int, counts in its team.
sig_addr: one symmetric pointer to uint64, given as this PE's address.  signal: an integer.
Order: a release of the program's earlier stores and puts to this PE's heap and to that of pe; for others, quiet before.
{refused}
Spec: OpenSHMEM 1.6, 9.8 SHMEM_{NAME}.
"""


@documented(PUT_SIGNAL, free="It is free on return.")
@jit
def put_signal(ctx, dest, source, nelems, sig_addr, signal, sig_op: tl.constexpr, pe):
    send(ctx, "put_signal", dest, source, nelems, sig_addr, signal, sig_op, pe)


@documented(PUT_SIGNAL, free="It is free after quiet.")
@jit
def put_signal_nbi(ctx, dest, source, nelems, sig_addr, signal, sig_op: tl.constexpr, pe):
    send(ctx, "put_signal_nbi", dest, source, nelems, sig_addr, signal, sig_op, pe)


@jit
def send(ctx, routine: tl.constexpr, dest, source, nelems, sig_addr, signal, sig_op: tl.constexpr, pe):
    """put_signal, in the name of ``routine``."""
    arch.check_one(ctx, routine, "dest", dest, pe, nelems)
    arch.check_local(routine, "source", source, dest.dtype.element_ty, nelems)
    check_signal(ctx, routine, sig_addr, pe)
    arch.check_apart(routine, sig_addr, dest, nelems)
    arch.check_choice(routine, "sig_op", sig_op, "SIGNAL_SET, SIGNAL_ADD")
    value = arch.fit(routine, "signal", signal, sig_addr)
    event = arch.begin_write(ctx, routine, named(sig_op), sig_addr, value, pe, source, nelems)
    transport.put(ctx, dest, source, nelems, pe)
    update(ctx, sig_addr, value, sig_op, pe)
    arch.end_event(ctx, event)


@documented(UPDATE, "Set")
@jit
def signal_set(ctx, sig_addr, signal, pe):
    alone(ctx, "signal_set", sig_addr, signal, SIGNAL_SET, pe)


@documented(UPDATE, "Add to")
@jit
def signal_add(ctx, sig_addr, signal, pe):
    alone(ctx, "signal_add", sig_addr, signal, SIGNAL_ADD, pe)


@jit
def signal_fetch(ctx, sig_addr):
    """Return the signal here, read as an atomic, without waiting.

    ctx: a device context.  sig_addr: one symmetric pointer to uint64, this PE's address.
    Order: an acquire: the data of the put_signal that updated it is readable.
    Errors: DtypeError and ArgumentError for operands of a wrong type; NotSymmetricError in interpreted kernels.
    Spec: OpenSHMEM 1.6, 9.8 SHMEM_SIGNAL_FETCH.
    """
    arch.check_here(ctx, "signal_fetch", "sig_addr", sig_addr)
    arch.expect("signal_fetch", "sig_addr", sig_addr, tl.uint64)
    event = arch.begin_call(ctx, "signal_fetch", None, sig_addr)
    found = arch.fetch(ctx, sig_addr)
    arch.end_event(ctx, event)
    return found


@jit
def signal_wait_until(ctx, sig_addr, cmp, value):
    """Wait until the signal here compares true with ``value``, and return the value seen. The whole program waits.

    ctx: a device context.  sig_addr: one symmetric pointer to uint64, this PE's address.
    cmp: CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT or CMP_LE, a constant.  value: an integer.
    Order: an acquire: the data of the put_signal that updated the signal is readable.
    Errors: DtypeError and ArgumentError for operands of a wrong type; NotSymmetricError in interpreted kernels;
        WaitTimeoutError, raised by the next host call, where the wait takes longer than PYSHMEM_WAIT_TIMEOUT.
    Spec: OpenSHMEM 1.6, 9.10 SHMEM_SIGNAL_WAIT_UNTIL.
    """
    arch.check_here(ctx, "signal_wait_until", "sig_addr", sig_addr)
    arch.expect("signal_wait_until", "sig_addr", sig_addr, tl.uint64)
    return wait(ctx, "signal_wait_until", "sig_addr", sig_addr, cmp, value)


@jit
def alone(ctx, routine: tl.constexpr, sig_addr, signal, sig_op: tl.constexpr, pe):
    """signal_set or signal_add, in the name of ``routine``."""
    check_signal(ctx, routine, sig_addr, pe)
    value = arch.fit(routine, "signal", signal, sig_addr)
    event = arch.begin_write(ctx, routine, named(sig_op), sig_addr, value, pe, sig_addr, 1)
    update(ctx, sig_addr, value, sig_op, pe)
    arch.end_event(ctx, event)


@triton.constexpr_function
def named(sig_op: int) -> str:
    return "add" if sig_op == 1 else "set"


@jit
def check_signal(ctx, routine: tl.constexpr, sig_addr, pe):
    """Errors: those that a signal's address may have."""
    arch.check_one(ctx, routine, "sig_addr", sig_addr, pe)
    arch.expect(routine, "sig_addr", sig_addr, tl.uint64)


@jit
def update(ctx, sig_addr, value, sig_op: tl.constexpr, pe):
    """Set or add, as a release of everything that the program has stored."""
    if sig_op == SIGNAL_ADD:
        transport.add_signal(ctx, sig_addr, value, pe)
    else:
        transport.set_signal(ctx, sig_addr, value, pe)
