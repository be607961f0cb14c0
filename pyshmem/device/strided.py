"""Strided put and get in kernels, made by the whole program at once. Spec: OpenSHMEM 1.6, 9.6.

dest, source: pointers to one dtype, to nelems elements or nblocks blocks of bsize; the one on ``pe`` symmetric, given as
this PE's address, the other in any memory; source is free and dest of a get whole when the call returns.
dst, sst: from one element or block of dest, of source, to the next, in elements: 1 or more, dst not below bsize.
nelems: a run-time int.  bsize, nblocks: run-time ints.
Order: put's: seen on pe after a later fence or quiet and a flag, put_signal, or barrier_all.
Errors: two pointees, an address out of live memory, a pe, a stride or a count out of range.
"""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit, translate
from pyshmem.device.context import DeviceContext


@jit
def iput(
    ctx: DeviceContext,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    nelems: tl.tensor,
    pe: tl.tensor,
) -> None:
    """Copy ``source[i * sst]`` to ``dest[i * dst]`` on ``pe``, for i below nelems. Spec: 9.6 SHMEM_IPUT."""
    put_blocks(ctx, "iput", dest, source, dst, sst, 1, nelems, pe)


@jit
def iget(
    ctx: DeviceContext,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    nelems: tl.tensor,
    pe: tl.tensor,
) -> None:
    """Copy ``source[i * sst]`` on ``pe`` to ``dest[i * dst]`` here, for i below nelems. Spec: 9.6 SHMEM_IGET."""
    get_blocks(ctx, "iget", dest, source, dst, sst, 1, nelems, pe)


@jit
def ibput(
    ctx: DeviceContext,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    bsize: tl.tensor,
    nblocks: tl.tensor,
    pe: tl.tensor,
) -> None:
    """Copy nblocks blocks of ``source`` to ``dest`` on ``pe``, their starts sst and dst apart. Spec: 9.6 SHMEM_IBPUT."""
    put_blocks(ctx, "ibput", dest, source, dst, sst, bsize, nblocks, pe)


@jit
def ibget(
    ctx: DeviceContext,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    bsize: tl.tensor,
    nblocks: tl.tensor,
    pe: tl.tensor,
) -> None:
    """Copy nblocks blocks of ``source`` on ``pe`` to ``dest``, their starts sst and dst apart. Spec: 9.6 SHMEM_IBGET."""
    get_blocks(ctx, "ibget", dest, source, dst, sst, bsize, nblocks, pe)


@jit
def put_blocks(
    ctx: DeviceContext,
    routine: tl.constexpr,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    bsize: tl.tensor,
    nblocks: tl.tensor,
    pe: tl.tensor,
) -> None:
    """ibput, under any name."""
    arch.check_blocks(ctx, routine, "dest", dest, pe, dst, sst, bsize, nblocks)
    arch.expect(routine, "source", source, dest.dtype.element_ty)
    arch.copy_blocks(ctx, translate(ctx, dest, pe), source, dst, sst, bsize, nblocks)
    arch.join(ctx)  # source is free for every thread


@jit
def get_blocks(
    ctx: DeviceContext,
    routine: tl.constexpr,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    bsize: tl.tensor,
    nblocks: tl.tensor,
    pe: tl.tensor,
) -> None:
    """ibget, under any name."""
    arch.check_blocks(ctx, routine, "source", source, pe, dst, sst, bsize, nblocks)
    arch.expect(routine, "dest", dest, source.dtype.element_ty)
    arch.copy_blocks(ctx, dest, translate(ctx, source, pe), dst, sst, bsize, nblocks)
    arch.join(ctx)  # dest is whole for every thread
