"""Block-strided put and get: blocks of elements at equal distances. Spec: OpenSHMEM 1.6, 9.6."""

from __future__ import annotations

from typing import Any

from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.host.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.host.operands import (
    Operand,
    between,
    count_of,
    delta_to,
    describe,
    name_of,
    require_init,
    require_symmetric,
    require_writable,
)


def ibput(
    target: Any, source: Any, pe: int, tst: int, sst: int, bsize: int, nblocks: int, ctx: Ctx | None = None
) -> None:
    """Copy ``nblocks`` blocks of ``bsize`` elements of ``source`` to ``target`` on ``pe``.

    target, source: iput's.  tst, sst: elements from the begin of a block to that of the next, in target, where blocks
    must not overlap, and in source; 1 or more.  Order and errors: put.  Spec: 9.6 SHMEM_IBPUT.
    """
    if ctx is not None:
        pe = world_pe("ibput", ctx, pe)
    near, own = _sides("ibput", (target, tst), (source, sst), bsize, nblocks)
    item = near.dtype.itemsize
    if not bsize * nblocks:
        delta_to("ibput", pe)
        return
    require_symmetric("ibput", "target", near, _span(tst, bsize, nblocks) * item)
    heap = between(near.heap, own.heap)
    dest = near.address + delta_to("ibput", pe, near.heap)
    heap.copy_strided(dest, own.address, tst * item, sst * item, bsize * item, nblocks)


def ibget(
    target: Any, source: Any, pe: int, tst: int, sst: int, bsize: int, nblocks: int, ctx: Ctx | None = None
) -> None:
    """Copy ``nblocks`` blocks of ``bsize`` elements of ``source`` on ``pe`` to ``target`` here.

    target, source: iget's.  tst, sst: ibput's.  Order and errors: get.  Spec: 9.6 SHMEM_IBGET.
    """
    if ctx is not None:
        pe = world_pe("ibget", ctx, pe)
    own, near = _sides("ibget", (target, tst), (source, sst), bsize, nblocks)
    item = near.dtype.itemsize
    if not bsize * nblocks:
        delta_to("ibget", pe)
        return
    require_symmetric("ibget", "source", near, _span(sst, bsize, nblocks) * item)
    require_writable("ibget", "target", target)
    heap = between(near.heap, own.heap)
    source_there = near.address + delta_to("ibget", pe, near.heap)
    heap.copy_strided(own.address, source_there, tst * item, sst * item, bsize * item, nblocks)


def _sides(
    routine: str, target: tuple[Any, int], source: tuple[Any, int], bsize: int, nblocks: int
) -> tuple[Operand, Operand]:
    """Target and source, each given with its stride, once the blocks are known to fit."""
    require_init(routine)
    count_of(routine, "bsize", bsize)
    count_of(routine, "nblocks", nblocks)
    sides = []
    for name, stride_name, (array, stride) in (("target", "tst", target), ("source", "sst", source)):
        side = describe(routine, name, array)
        least = max(bsize, 1) if name == "target" else 1
        if count_of(routine, stride_name, stride) < least:
            refuse(ArgumentError, routine, stride_name, str(stride), f"{least} or more, with blocks of {bsize}")
        need = _span(stride, bsize, nblocks)
        if need > side.nelems:
            wants = f"at least {need}, for {nblocks} blocks of {bsize} at stride {stride}"
            refuse(OutOfRangeError, routine, name, f"{side.nelems} elements", wants)
        sides.append(side)
    if sides[0].dtype != sides[1].dtype:
        wants = f"the {name_of(sides[0].dtype)} of target: no casting between arrays"
        refuse(DtypeError, routine, "source", f"{name_of(sides[1].dtype)} elements", wants)
    return sides[0], sides[1]


def _span(stride: int, bsize: int, nblocks: int) -> int:
    """Elements from the first one to behind the last."""
    return (nblocks - 1) * stride + bsize if bsize and nblocks else 0
