"""Block-strided put and get: blocks of elements at equal distances. Spec: OpenSHMEM 1.6, 9.6."""

from __future__ import annotations

from typing import Any

from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.runtime.arguments import (
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
from pyshmem.runtime.errors import ArgumentError, DtypeError, OutOfRangeError, refuse


def ibput(
    target: Any, source: Any, pe: int, tst: int, sst: int, bsize: int, nblocks: int, ctx: Ctx | None = None
) -> None:
    """Copy ``nblocks`` blocks of ``bsize`` elements of ``source`` to ``target`` on ``pe``.

    target: symmetric, contiguous, of source's dtype, long enough for its blocks.
    source: any contiguous torch, NumPy or CuPy array, long enough for its blocks; it may be reused on return.
    tst, sst: elements from the start of one block to the start of the next in target, where blocks must not overlap, and in
        source; 1 or more.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: visible on pe after a later fence or quiet followed by a flag or a signal, or after a barrier.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.6 SHMEM_IBPUT.
    """
    if ctx is not None:
        pe = world_pe("ibput", ctx, pe)
    near, own, (tst, sst, bsize, nblocks) = _sides("ibput", (target, tst), (source, sst), bsize, nblocks)
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
    """Copy ``nblocks`` blocks of ``bsize`` elements of ``source`` on ``pe`` to the local ``target``.

    target: any contiguous torch, NumPy or CuPy array of source's dtype, long enough for its blocks; it holds the data on
        return.
    source: symmetric, contiguous, long enough for its blocks.
    tst, sst: elements from the start of one block to the start of the next in target, where blocks must not overlap, and in
        source; 1 or more.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_IBGET.
    """
    if ctx is not None:
        pe = world_pe("ibget", ctx, pe)
    own, near, (tst, sst, bsize, nblocks) = _sides("ibget", (target, tst), (source, sst), bsize, nblocks)
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
) -> tuple[Operand, Operand, tuple[int, int, int, int]]:
    """Target and source, each given with its stride, once the blocks are known to fit; and the four numbers as ints."""
    require_init(routine)
    bsize, nblocks = count_of(routine, "bsize", bsize), count_of(routine, "nblocks", nblocks)
    to, tst = _side(routine, "target", *target, bsize, nblocks)
    own, sst = _side(routine, "source", *source, bsize, nblocks)
    if to.dtype != own.dtype:
        wants = f"the {name_of(to.dtype)} of target: no casting between arrays"
        refuse(DtypeError, routine, "source", f"{name_of(own.dtype)} elements", wants)
    return to, own, (tst, sst, bsize, nblocks)


def _side(routine: str, name: str, array: Any, stride: Any, bsize: int, nblocks: int) -> tuple[Operand, int]:
    side = describe(routine, name, array)
    stride_name, least = ("tst", max(bsize, 1)) if name == "target" else ("sst", 1)
    step = count_of(routine, stride_name, stride)
    if step < least:
        refuse(ArgumentError, routine, stride_name, str(step), f"{least} or more, with blocks of {bsize}")
    need = _span(step, bsize, nblocks)
    if need > side.nelems:
        wants = f"at least {need}, for {nblocks} blocks of {bsize} at stride {step}"
        refuse(OutOfRangeError, routine, name, f"{side.nelems} elements", wants)
    return side, step


def _span(stride: int, bsize: int, nblocks: int) -> int:
    """Elements from the first one to behind the last."""
    return (nblocks - 1) * stride + bsize if bsize and nblocks else 0
