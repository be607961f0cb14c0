"""Copies by all threads of a program, on GPUs: contiguous arrays, and blocks at equal distances."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu import blocks
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.checks import integer_like
from pyshmem.device.arch.gpu.ordering import join
from pyshmem.device.arch.gpu.translation import distance, translate
from pyshmem.device.arch.gpu.values import rounded


@triton.jit
def copy(ctx, dest, source, nelems):
    """Copy nelems elements from source to dest by all threads, 16 bytes per access if both are aligned to 16 bytes."""
    join(ctx)  # other threads may have written the source
    element: tl.constexpr = tl.pointer_type(integer_like(dest.dtype.element_ty))
    to, of, n = dest.to(element, bitcast=True), source.to(element, bitcast=True), blocks.number(0, tl.int64) + nelems
    done = blocks.number(0, tl.int64)
    if ((dest.to(tl.int64) | source.to(tl.int64)) & 15) == 0:
        done = copy_wide(ctx, to, of, n)
    copy_elements(ctx, to, of, done, n)


@triton.jit
def copy_wide(ctx, to, of, n):
    """Copy whole blocks, 16 bytes per access, four accesses in flight and then one. Returns: the number of elements."""
    a_thread: tl.constexpr = 128 // to.dtype.element_ty.primitive_bitwidth
    small: tl.constexpr = gpu.threads(ctx) * a_thread
    large: tl.constexpr = small * 4
    most = n // large * large
    for first in range(0, most, large):
        copy_block(to + first, of + first, large, a_thread)
    rest = n // small * small
    for first in range(most, rest, small):
        copy_block(to + first, of + first, small, a_thread)
    return rest


@triton.jit
def copy_block(to, of, count: tl.constexpr, each: tl.constexpr):
    lane = blocks.arange(count, each)
    tl.store(tl.multiple_of(to + lane, 16), tl.load(tl.multiple_of(of + lane, 16)))


@triton.jit
def copy_elements(ctx, to, of, done, n):
    """Copy the elements from ``done`` to ``n`` by single stores, four per thread in flight."""
    count: tl.constexpr = gpu.threads(ctx)
    lanes = blocks.apart(count)
    whole = done + (n - done) // (4 * count) * (4 * count)
    for first in range(done, whole, 4 * count):
        tl.store(to + (first + lanes), tl.load(of + (first + lanes)))
    if whole < n:
        place = whole + lanes
        tl.store(to + place, tl.load(of + place, mask=place < n), mask=place < n)


@triton.jit
def copy_blocks(ctx, dest, source, dst, sst, bsize, nblocks):
    """Copy nblocks blocks of bsize elements from source to dest. Their starts are sst and dst elements apart."""
    if bsize >= gpu.threads(ctx):
        n = blocks.number(0, tl.int64) + nblocks
        for at in range(n):
            copy(ctx, dest + at * dst, source + at * sst, bsize)
    else:
        copy_small_blocks(ctx, dest, source, dst, sst, bsize, nblocks)


@triton.jit
def copy_small_blocks(ctx, dest, source, dst, sst, bsize, nblocks):
    """Copy blocks with fewer elements than the program has threads, four elements per thread in flight."""
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


@triton.jit
def load_block(ctx, start, lane, pe, count, whole: tl.constexpr):
    """Return the elements ``lane`` behind ``start`` on ``pe``: those below ``count``, or zeros. whole: all are below."""
    pointers = translate(ctx, start, pe) + lane
    if whole:
        return tl.load(tl.multiple_of(pointers, 16))
    else:
        return tl.load(pointers, mask=lane < count, other=0)


@triton.jit
def store_block(ctx, start, lane, value, pe, count, whole: tl.constexpr):
    """Store to the elements ``lane`` behind ``start`` on ``pe``, rounded to their type. Others: as load_block."""
    pointers = translate(ctx, start, pe) + lane
    if whole:
        tl.store(tl.multiple_of(pointers, 16), rounded(value, start.dtype.element_ty))
    else:
        tl.store(pointers, rounded(value, start.dtype.element_ty), mask=lane < count)


@triton.jit
def store_number(ctx, address, value, pe, mask):
    """Store an int64, or one of a block, to the scratch of each PE of a block."""
    there = address + distance(ctx, pe, mask)
    tl.store(there.to(tl.pointer_type(tl.int64)), value, mask=mask)
