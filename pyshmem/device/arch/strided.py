"""Copies of blocks at equal distances, on GPUs."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch import blocks
from pyshmem.device.arch import instructions as gpu
from pyshmem.device.arch.checks import integer_like
from pyshmem.device.arch.compiled import copy, join


@triton.jit
def copy_blocks(
    ctx: tl.tensor,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    bsize: tl.tensor,
    nblocks: tl.tensor,
) -> None:
    """nblocks blocks of bsize elements from source to dest, their starts sst and dst elements apart."""
    if bsize >= gpu.threads(ctx):
        n = blocks.number(0, tl.int64) + nblocks
        for at in range(n):
            copy(ctx, dest + at * dst, source + at * sst, bsize)
    else:
        copy_small_blocks(ctx, dest, source, dst, sst, bsize, nblocks)


@triton.jit
def copy_small_blocks(
    ctx: tl.tensor,
    dest: tl.tensor,
    source: tl.tensor,
    dst: tl.tensor,
    sst: tl.tensor,
    bsize: tl.tensor,
    nblocks: tl.tensor,
) -> None:
    """Blocks of fewer elements than there are threads: an element a thread, four in flight."""
    join(ctx)  # other threads may have written the source
    element: tl.constexpr = tl.pointer_type(integer_like(dest.dtype.element_ty))
    to, of = dest.to(element, bitcast=True), source.to(element, bitcast=True)
    n = (blocks.number(0, tl.int64) + nblocks) * bsize
    count: tl.constexpr = 4 * gpu.threads(ctx)
    for first in range(0, n, count):
        place = first + blocks.arange(count)
        block = place // bsize
        inside = place - block * bsize
        values = tl.load(of + (block * sst + inside), mask=place < n)
        tl.store(to + (block * dst + inside), values, mask=place < n)
