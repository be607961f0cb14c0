"""Copies in interpreted kernels, by the host's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from pyshmem.base.far import SHIFT
from pyshmem.device.arch.interpreter import far
from pyshmem.device.arch.interpreter.translation import away, translate
from pyshmem.device.arch.interpreter.values import array, item_bytes, number, rounded
from pyshmem.native import _native


def copy(ctx: Any, dest: Any, source: Any, nelems: Any) -> None:
    """Copy nelems elements from source to dest. A single aligned word of at most 8 bytes is copied by one store."""
    nbytes = number(nelems) * item_bytes(dest)
    if far.is_far(dest) or far.is_far(source):
        far.copy(dest, source, nbytes)
    else:
        _native.copy(number(dest), number(source), nbytes)


def copy_blocks(ctx: Any, dest: Any, source: Any, dst: Any, sst: Any, bsize: Any, nblocks: Any) -> None:
    """Copy nblocks blocks of bsize elements from source to dest, with strides of sst and dst elements."""
    steps = tuple(number(each) * item_bytes(dest) for each in (dst, sst, bsize))
    if far.is_far(dest) or far.is_far(source):
        far.copy_strided(dest, source, steps, number(nblocks))
        return
    _native.copy_strided(number(dest), number(source), *steps, number(nblocks))


copy_to = copy_from = copy
copy_blocks_to = copy_blocks_from = copy_blocks


def read(ctx: Any, pointer: Any) -> Any:
    """Load one element from memory."""
    return far.load(pointer, (), 1) if far.is_far(pointer) else tl.load(pointer)


def store_single(ctx: Any, pointer: Any, value: Any) -> None:
    if far.is_far(pointer):
        far.store(pointer, value, 1)
    else:
        tl.store(pointer, value)


def load_block(ctx: Any, start: Any, lane: Any, pe: Any, count: Any, whole: Any) -> Any:
    """Return the elements ``lane`` behind ``start`` on ``pe``: those below ``count``, or zeros. whole: all are below."""
    there = translate(ctx, start, pe)
    if far.is_far(there):
        return far.load(there, array(lane).shape, _inside(lane, count))
    return tl.load(there + lane, mask=lane < count, other=0)


def store_block(ctx: Any, start: Any, lane: Any, value: Any, pe: Any, count: Any, whole: Any) -> None:
    """Store to the elements ``lane`` behind ``start`` on ``pe``, rounded to their type. Others: as load_block."""
    there, fitting = translate(ctx, start, pe), rounded(value, start.dtype.element_ty)
    if far.is_far(there):
        far.store(there, fitting, _inside(lane, count))
    else:
        tl.store(there + lane, fitting, mask=lane < count)


def _inside(lane: Any, count: Any) -> int:
    return int((array(lane) < number(count)).sum())


def store_number(ctx: Any, address: Any, value: Any, pe: Any, mask: Any) -> None:
    """Store an int64, or one of a block, to the scratch of each PE of a block."""
    inside = array(mask).astype(bool)
    values = np.broadcast_to(array(value), inside.shape)[inside]
    for member, each in zip(array(pe)[inside].tolist(), values.tolist(), strict=True):
        store_word(number(address) + away(ctx, member), each)


def store_word(place: int, value: int) -> None:
    """Store an int64 at an address or a place."""
    if place >> SHIFT:
        word = np.array([value], np.int64)
        _native.far_put(place, word.ctypes.data, 8)
    else:
        _native.set_int64(place, value)
