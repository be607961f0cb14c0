"""Remote memory access in kernels. Spec: OpenSHMEM 1.6, 9.6; load and store are the tile forms, as Triton users expect."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import translate


@jit
def load(ctx: Any, pointers: Any, pe: Any, mask: Any = None, other: Any = None) -> Any:
    """tl.load from ``pe``: the values at ``pointers`` there.

    pointers: symmetric, one or a block, given as this PE's addresses.  pe: a scalar or a block that broadcasts against
    them.  mask, other: as in tl.load.  Order: none but what fence, quiet and waits give.
    Errors: a masked-in address out of live memory, a pe out of range.
    """
    arch.check(ctx, "load", "pointers", pointers, pe, mask)
    return tl.load(translate(ctx, pointers, pe), mask=mask, other=other)


@jit
def store(ctx: Any, pointers: Any, value: Any, pe: Any, mask: Any = None) -> None:
    """tl.store to ``pe``: ``value`` at ``pointers`` there.

    pointers, pe, mask: as in load.  value: of a type that the pointee holds, a scalar or a block.
    Order: seen on pe after a later fence or quiet and a flag, put_signal, or barrier_all.  Errors: load's, DtypeError.
    """
    arch.check(ctx, "store", "pointers", pointers, pe, mask)
    tl.store(translate(ctx, pointers, pe), arch.fit("store", "value", value, pointers), mask=mask)


@jit
def put(ctx: Any, dest: Any, source: Any, nelems: Any, pe: Any) -> None:
    """Copy ``source[:nelems]`` to ``dest`` on ``pe``. The whole program calls it at once.

    dest, source: pointers to one dtype; dest symmetric, given as this PE's address; source any, free again on return.
    nelems, pe: run-time ints.  Order: seen on pe after a later fence or quiet and a flag, put_signal, or barrier_all.
    Errors: two pointees, an address out of live memory, a pe out of range.  Spec: 9.6 SHMEM_PUT.
    """
    arch.check(ctx, "put", "dest", dest, pe, count=nelems)
    arch.expect("put", "source", source, dest.dtype.element_ty)
    arch.copy(translate(ctx, dest, pe), source, nelems)


@jit
def get(ctx: Any, dest: Any, source: Any, nelems: Any, pe: Any) -> None:
    """Copy ``source[:nelems]`` on ``pe`` to ``dest`` here. The whole program calls it at once; it holds the data on return.

    dest: any pointer; source: symmetric, given as this PE's address, of dest's dtype.  nelems, pe: run-time ints.
    Errors: put's.  Spec: 9.6 SHMEM_GET.
    """
    arch.check(ctx, "get", "source", source, pe, count=nelems)
    arch.expect("get", "dest", dest, source.dtype.element_ty)
    arch.copy(dest, translate(ctx, source, pe), nelems)


@jit
def p(ctx: Any, dest: Any, value: Any, pe: Any) -> None:
    """Write ``value`` to ``dest`` on ``pe``, by a single store. dest: one symmetric pointer.

    Order and errors: store's.  Spec: 9.6 SHMEM_P.
    """
    arch.check(ctx, "p", "dest", dest, pe)
    tl.store(translate(ctx, dest, pe), arch.fit("p", "value", value, dest))


@jit
def g(ctx: Any, source: Any, pe: Any) -> Any:
    """The element at ``source`` on ``pe``. source: one symmetric pointer. Errors: load's. Spec: 9.6 SHMEM_G."""
    arch.check(ctx, "g", "source", source, pe)
    return tl.load(translate(ctx, source, pe))
