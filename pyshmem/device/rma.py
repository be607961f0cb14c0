"""Remote memory access in kernels. Spec: OpenSHMEM 1.6, 9.6; load and store are the tile forms, as Triton users expect."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit


@jit
def load(ctx, pointers, pe, mask=None, other=None):
    """tl.load from ``pe``: the values at ``pointers`` there.

    pointers: symmetric, one or a block, to any dtype, given as this PE's addresses.
    pe: a scalar or a block that broadcasts against them.  mask, other: as in tl.load.
    Order: none but what fence, quiet and waits give.
    Errors: a masked-in address out of live memory, a pe out of range.
    """
    return load_for(ctx, "load", pointers, pe, mask, other)


@jit
def load_for(ctx, routine: tl.constexpr, pointers, pe, mask, other):
    """load, as a part of ``routine``."""
    arch.check(ctx, routine, "pointers", pointers, pe, mask)
    return transport.load(ctx, pointers, pe, mask, other)


@jit
def store(ctx, pointers, value, pe, mask=None):
    """tl.store to ``pe``: ``value`` at ``pointers`` there.

    pointers, pe, mask: load's.  value: of a type that the pointee holds, a scalar or a block.
    Order: seen on pe after a later fence or quiet and a flag, put_signal, or barrier_all.  Errors: load's, DtypeError.
    """
    store_for(ctx, "store", pointers, value, pe, mask)


@jit
def store_for(ctx, routine: tl.constexpr, pointers, value, pe, mask):
    """store, as a part of ``routine``."""
    arch.check(ctx, routine, "pointers", pointers, pe, mask)
    transport.store(ctx, routine, pointers, value, pe, mask)


@jit
def put(ctx, dest, source, nelems, pe):
    """Copy ``source[:nelems]`` to ``dest`` on ``pe``. The whole program calls it at once.

    dest, source: pointers to one dtype; dest symmetric, given as this PE's address; source any, free again on return.
    nelems, pe: run-time ints.  Order: seen on pe after a later fence or quiet and a flag, put_signal, or barrier_all.
    Errors: two pointees, an address out of live memory, a pe out of range.  Spec: 9.6 SHMEM_PUT.
    """
    start_put(ctx, "put", dest, source, nelems, pe)
    arch.join(ctx)  # source is free for every thread


@jit
def get(ctx, dest, source, nelems, pe):
    """Copy ``source[:nelems]`` on ``pe`` to ``dest`` here. The whole program calls it at once; it holds the data on return.

    dest: any pointer.  source: symmetric, given as this PE's address, of dest's dtype.  nelems, pe: run-time ints.
    Order: load's.  Errors: put's.  Spec: 9.6 SHMEM_GET.
    """
    start_get(ctx, "get", dest, source, nelems, pe)
    arch.join(ctx)  # dest is whole for every thread


@jit
def put_nbi(ctx, dest, source, nelems, pe):
    """put that leaves ``source`` in use until quiet: no thread waits for the others' loads. Spec: 9.6 SHMEM_PUT_NBI."""
    start_put(ctx, "put_nbi", dest, source, nelems, pe)


@jit
def get_nbi(ctx, dest, source, nelems, pe):
    """get whose data is in ``dest`` after quiet, and not for all threads before. Spec: 9.6 SHMEM_GET_NBI."""
    start_get(ctx, "get_nbi", dest, source, nelems, pe)


@jit
def start_put(ctx, routine: tl.constexpr, dest, source, nelems, pe):
    """put, but that a thread may still load from source when another returns."""
    arch.check_one(ctx, routine, "dest", dest, pe, nelems)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    transport.put(ctx, dest, source, nelems, pe)


@jit
def start_get(ctx, routine: tl.constexpr, dest, source, nelems, pe):
    """get, but that a thread may still store to dest when another returns."""
    arch.check_one(ctx, routine, "source", source, pe, nelems)
    arch.expect(routine, "dest", dest, source.dtype.element_ty)
    transport.get(ctx, dest, source, nelems, pe)


@jit
def p(ctx, dest, value, pe):
    """Write ``value`` to ``dest`` on ``pe``, by a single store.

    dest: one symmetric pointer to any dtype, this PE's address.  value: a scalar that the pointee holds.
    Order and errors: store's.  Spec: 9.6 SHMEM_P.
    """
    arch.check_one(ctx, "p", "dest", dest, pe)
    transport.write(ctx, dest, arch.fit("p", "value", value, dest), pe)


@jit
def g(ctx, source, pe):
    """The element at ``source`` on ``pe``, as it is in memory now.

    source: one symmetric pointer to any dtype, this PE's address.  Order and errors: load's.  Spec: 9.6 SHMEM_G.
    """
    arch.check_one(ctx, "g", "source", source, pe)
    return transport.read(ctx, source, pe)  # what is there now, in a loop too


@jit
def iput(ctx, dest, source, dst, sst, nelems, pe):
    """Copy ``source[i * sst]`` to ``dest[i * dst]`` on ``pe``, for i below nelems. Spec: 9.6 SHMEM_IPUT."""
    put_blocks(ctx, "iput", dest, source, dst, sst, 1, nelems, pe)


@jit
def iget(ctx, dest, source, dst, sst, nelems, pe):
    """Copy ``source[i * sst]`` on ``pe`` to ``dest[i * dst]`` here, for i below nelems. Spec: 9.6 SHMEM_IGET."""
    get_blocks(ctx, "iget", dest, source, dst, sst, 1, nelems, pe)


@jit
def ibput(ctx, dest, source, dst, sst, bsize, nblocks, pe):
    """Copy nblocks blocks of ``source`` to ``dest`` on ``pe``, their starts sst and dst apart. Spec: 9.6 SHMEM_IBPUT."""
    put_blocks(ctx, "ibput", dest, source, dst, sst, bsize, nblocks, pe)


@jit
def ibget(ctx, dest, source, dst, sst, bsize, nblocks, pe):
    """Copy nblocks blocks of ``source`` on ``pe`` to ``dest``, their starts sst and dst apart. Spec: 9.6 SHMEM_IBGET."""
    get_blocks(ctx, "ibget", dest, source, dst, sst, bsize, nblocks, pe)


@jit
def put_blocks(ctx, routine: tl.constexpr, dest, source, dst, sst, bsize, nblocks, pe):
    """ibput, under any name."""
    arch.check_blocks(ctx, routine, "dest", dest, pe, dst, sst, bsize, nblocks)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    transport.put_blocks(ctx, dest, source, dst, sst, bsize, nblocks, pe)
    arch.join(ctx)  # source is free for every thread


@jit
def get_blocks(ctx, routine: tl.constexpr, dest, source, dst, sst, bsize, nblocks, pe):
    """ibget, under any name."""
    arch.check_blocks(ctx, routine, "source", source, pe, dst, sst, bsize, nblocks)
    arch.expect(routine, "dest", dest, source.dtype.element_ty)
    transport.get_blocks(ctx, dest, source, dst, sst, bsize, nblocks, pe)
    arch.join(ctx)  # dest is whole for every thread
