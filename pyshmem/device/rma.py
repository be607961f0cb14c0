"""Remote memory access in kernels. Spec: OpenSHMEM 1.6, 9.6; load and store are the tile forms, as Triton users expect."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit, translate
from pyshmem.device.context import DeviceContext


@jit
def load(
    ctx: DeviceContext, pointers: tl.tensor, pe: tl.tensor, mask: tl.tensor = None, other: tl.tensor = None
) -> tl.tensor:
    """tl.load from ``pe``: the values at ``pointers`` there.

    pointers: symmetric, one or a block, to any dtype, given as this PE's addresses.
    pe: a scalar or a block that broadcasts against them.  mask, other: as in tl.load.
    Order: none but what fence, quiet and waits give.
    Errors: a masked-in address out of live memory, a pe out of range.
    """
    return load_for(ctx, "load", pointers, pe, mask, other)


@jit
def load_for(
    ctx: DeviceContext,
    routine: tl.constexpr,
    pointers: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor,
    other: tl.tensor,
) -> tl.tensor:
    """load, as a part of ``routine``."""
    arch.check(ctx, routine, "pointers", pointers, pe, mask)
    return tl.load(translate(ctx, pointers, pe), mask=mask, other=other)


@jit
def store(ctx: DeviceContext, pointers: tl.tensor, value: tl.tensor, pe: tl.tensor, mask: tl.tensor = None) -> None:
    """tl.store to ``pe``: ``value`` at ``pointers`` there.

    pointers, pe, mask: load's.  value: of a type that the pointee holds, a scalar or a block.
    Order: seen on pe after a later fence or quiet and a flag, put_signal, or barrier_all.  Errors: load's, DtypeError.
    """
    store_for(ctx, "store", pointers, value, pe, mask)


@jit
def store_for(
    ctx: DeviceContext,
    routine: tl.constexpr,
    pointers: tl.tensor,
    value: tl.tensor,
    pe: tl.tensor,
    mask: tl.tensor,
) -> None:
    """store, as a part of ``routine``."""
    arch.check(ctx, routine, "pointers", pointers, pe, mask)
    there = translate(ctx, pointers, pe)
    tl.store(there, arch.fit(routine, "value", value, there), mask=mask)


@jit
def put(ctx: DeviceContext, dest: tl.tensor, source: tl.tensor, nelems: tl.tensor, pe: tl.tensor) -> None:
    """Copy ``source[:nelems]`` to ``dest`` on ``pe``. The whole program calls it at once.

    dest, source: pointers to one dtype; dest symmetric, given as this PE's address; source any, free again on return.
    nelems, pe: run-time ints.  Order: seen on pe after a later fence or quiet and a flag, put_signal, or barrier_all.
    Errors: two pointees, an address out of live memory, a pe out of range.  Spec: 9.6 SHMEM_PUT.
    """
    start_put(ctx, "put", dest, source, nelems, pe)
    arch.join(ctx)  # source is free for every thread


@jit
def get(ctx: DeviceContext, dest: tl.tensor, source: tl.tensor, nelems: tl.tensor, pe: tl.tensor) -> None:
    """Copy ``source[:nelems]`` on ``pe`` to ``dest`` here. The whole program calls it at once; it holds the data on return.

    dest: any pointer.  source: symmetric, given as this PE's address, of dest's dtype.  nelems, pe: run-time ints.
    Order: load's.  Errors: put's.  Spec: 9.6 SHMEM_GET.
    """
    start_get(ctx, "get", dest, source, nelems, pe)
    arch.join(ctx)  # dest is whole for every thread


@jit
def put_nbi(ctx: DeviceContext, dest: tl.tensor, source: tl.tensor, nelems: tl.tensor, pe: tl.tensor) -> None:
    """put that leaves ``source`` in use until quiet: no thread waits for the others' loads. Spec: 9.6 SHMEM_PUT_NBI."""
    start_put(ctx, "put_nbi", dest, source, nelems, pe)


@jit
def get_nbi(ctx: DeviceContext, dest: tl.tensor, source: tl.tensor, nelems: tl.tensor, pe: tl.tensor) -> None:
    """get whose data is in ``dest`` after quiet, and not for all threads before. Spec: 9.6 SHMEM_GET_NBI."""
    start_get(ctx, "get_nbi", dest, source, nelems, pe)


@jit
def start_put(
    ctx: DeviceContext, routine: tl.constexpr, dest: tl.tensor, source: tl.tensor, nelems: tl.tensor, pe: tl.tensor
) -> None:
    """put, but that a thread may still load from source when another returns."""
    arch.check_one(ctx, routine, "dest", dest, pe, nelems)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    arch.copy(ctx, translate(ctx, dest, pe), source, nelems)


@jit
def start_get(
    ctx: DeviceContext, routine: tl.constexpr, dest: tl.tensor, source: tl.tensor, nelems: tl.tensor, pe: tl.tensor
) -> None:
    """get, but that a thread may still store to dest when another returns."""
    arch.check_one(ctx, routine, "source", source, pe, nelems)
    arch.expect(routine, "dest", dest, source.dtype.element_ty)
    arch.copy(ctx, dest, translate(ctx, source, pe), nelems)


@jit
def p(ctx: DeviceContext, dest: tl.tensor, value: tl.tensor, pe: tl.tensor) -> None:
    """Write ``value`` to ``dest`` on ``pe``, by a single store.

    dest: one symmetric pointer to any dtype, this PE's address.  value: a scalar that the pointee holds.
    Order and errors: store's.  Spec: 9.6 SHMEM_P.
    """
    arch.check_one(ctx, "p", "dest", dest, pe)
    there, element = translate(ctx, dest, pe), arch.fit("p", "value", value, dest)
    arch.store_single(ctx, there, element)


@jit
def g(ctx: DeviceContext, source: tl.tensor, pe: tl.tensor) -> tl.tensor:
    """The element at ``source`` on ``pe``, as it is in memory now.

    source: one symmetric pointer to any dtype, this PE's address.  Order and errors: load's.  Spec: 9.6 SHMEM_G.
    """
    arch.check_one(ctx, "g", "source", source, pe)
    return arch.read(ctx, translate(ctx, source, pe))  # what is there now, in a loop too
