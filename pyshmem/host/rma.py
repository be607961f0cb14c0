"""Remote memory access: put, get, p, g, the strided and the block-strided forms. Spec: OpenSHMEM 1.6, 9.6.

On the CPU heap of a PE of this node every call is complete when it returns, the non-blocking ones too: both are within the
specification, and a copy by this core is the fastest there is. A put to another node is complete after quiet. On GPU heaps
copies are enqueued on torch's current stream, non-blocking ones on a stream of their context; a copy with one side in host
memory is complete when it returns. An aligned word of at most 8 bytes is written by a single store. Calls for GPU
memory of another node first wait for the current stream.

The copies themselves are in pyshmem.transport: near/cpu.py and near/gpu.py on this node, far/ to another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.memory.arguments import (
    WHOLE,
    Array,
    Operand,
    Sides,
    an,
    count_of,
    describe,
    require_init,
    require_one_dtype,
    require_symmetric,
    require_writable,
    scalar,
    scalar_of,
    transfer,
)
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import views
from pyshmem.memory.words import LOAD
from pyshmem.native import _native
from pyshmem.native._native import locate, locate_into, locate_strided
from pyshmem.transport.near_or_far import require_pe, routed, word_on

__all__ = ["g", "get", "get_nbi", "ibget", "ibput", "iget", "iput", "p", "put", "put_nbi"]

_PUT_NAMES = ("target", "source")
_GET_NAMES = ("source", "target")


def put(target: Array, source: Array, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` to ``target`` on ``pe``.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: any contiguous torch, NumPy or CuPy array; it may be reused on return.
    size: the number of elements; None means all of source.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: visible on pe after a later fence or quiet followed by a flag or a signal, or after a barrier. Aligned words of at
        most 8 bytes are never torn.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.6 SHMEM_PUT.
    """
    if ctx is not None:
        pe = world_pe("put", ctx, pe)
    found = locate(views, target, source, size, pe)
    if found is None:
        found = routed("put", transfer("put", _PUT_NAMES, target, source, size), pe)
    to, place, src, nbytes = found
    to.put(place, src, nbytes)


def get(target: Array, source: Array, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` on ``pe`` to the local ``target``, which holds the data on return.

    target: any contiguous torch, NumPy or CuPy array of source's dtype.
    source: symmetric, contiguous, with at least size elements.
    size: the number of elements; None means as many as target has.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_GET.
    """
    if ctx is not None:
        pe = world_pe("get", ctx, pe)
    found = locate_into(views, source, target, size, pe)
    if found is None:
        found = routed("get", transfer("get", _GET_NAMES, source, target, size), pe)
    to, place, dest, nbytes = found
    to.get(dest, place, nbytes)


def put_nbi(target: Array, source: Array, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` to ``target`` on ``pe``; the call may return before source is read.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: any contiguous torch, NumPy or CuPy array. It may be reused after quiet; until then pyshmem holds a reference to
        it.
    size: the number of elements; None means all of source.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: complete after quiet. Visible on pe after a later fence or quiet followed by a flag or a signal, or after a
        barrier.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.6 SHMEM_PUT_NBI.
    """
    if ctx is not None:
        pe = world_pe("put_nbi", ctx, pe)
    found = locate(views, target, source, size, pe)
    if found is None:
        found = routed("put_nbi", transfer("put_nbi", _PUT_NAMES, target, source, size), pe)
    to, place, src, nbytes = found
    to.put_nbi(place, src, nbytes, ctx, source)


def get_nbi(target: Array, source: Array, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` on ``pe`` to the local ``target``, which holds the data after quiet.

    target: any contiguous torch, NumPy or CuPy array of source's dtype. Until quiet pyshmem holds a reference to it.
    source: symmetric, contiguous, with at least size elements.
    size: the number of elements; None means as many as target has.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: complete after quiet or a barrier. Sees all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_GET_NBI.
    """
    if ctx is not None:
        pe = world_pe("get_nbi", ctx, pe)
    found = locate_into(views, source, target, size, pe)
    if found is None:
        found = routed("get_nbi", transfer("get_nbi", _GET_NAMES, source, target, size), pe)
    to, place, dest, nbytes = found
    to.get_nbi(dest, place, nbytes, ctx, target)


def p(target: Array, value: Any, pe: int, ctx: Ctx | None = None) -> None:
    """Write ``value`` to the one element of ``target`` on ``pe``, with a single store if it has at most 8 bytes.

    target: one symmetric element of any dtype.
    value: a scalar, or an array of one element, that the dtype can hold.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: visible on pe after a later fence or quiet followed by a flag or a signal, or after a barrier.
    Errors: NotSymmetricError, OutOfRangeError, ArgumentError, UnreachableError, NotInitializedError, and DtypeError for a
        value that the dtype cannot hold; nothing is written then.
    Spec: 9.6 SHMEM_P.
    """
    if ctx is not None:
        pe = world_pe("p", ctx, pe)
    to, place, dtype = word_on("p", "target", target, pe)
    store = to.atomics["set"].get(dtype)
    if store is None:
        _store("p", to, place, dtype, value)
        return
    if type(value) is not int or dtype not in _INTEGERS:
        whole = type(value) in WHOLE and dtype in _INTEGERS
        value = int(value) if whole else scalar("p", "value", value, dtype)
    try:
        store(place, value)
    except OverflowError:
        scalar("p", "value", value, dtype)


def g(source: Array, pe: int, ctx: Ctx | None = None) -> Any:
    """Return the one element of ``source`` on ``pe`` as a Python number.

    source: one symmetric element of any dtype.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError.
    Spec: 9.6 SHMEM_G.
    """
    if ctx is not None:
        pe = world_pe("g", ctx, pe)
    to, place, dtype = word_on("g", "source", source, pe)
    at = to.fetch(place, dtype.itemsize)
    load = LOAD.get(dtype)
    if load is not None:
        return load(at)
    landing = torch.empty(1, dtype=dtype, device="cpu") if isinstance(dtype, torch.dtype) else np.empty(1, dtype)
    _native.copy(describe("g", "source", landing).address, at, landing.itemsize)
    return landing[0].item()


_INTEGERS = frozenset((torch.int32, torch.int64, torch.uint32, torch.uint64))


def _store(routine: str, to: Any, place: int, dtype: Any, value: Any) -> None:
    """Store a value of any element type: it is built in private memory, then written, as one word if it is one."""
    if isinstance(dtype, torch.dtype):
        element: Any = torch.tensor([scalar(routine, "value", value, dtype)], dtype=dtype, device="cpu")
    else:
        if not isinstance(value, np.generic):  # it may have more bits than a Python number
            value = scalar_of(value)
        if not isinstance(value, (int, float, complex, np.generic)):
            refuse(
                DtypeError, routine, "value", an(type(value).__name__), "a Python or NumPy scalar, or an array of one"
            )
        element = np.array([value], dtype)
    to.store(place, describe(routine, "value", element).address, element.itemsize)


def iput(
    target: Array, source: Array, pe: int, tst: int = 1, sst: int = 1, size: int | None = None, ctx: Ctx | None = None
) -> None:
    """Copy ``size`` elements of ``source``, with stride ``sst``, to ``target`` on ``pe``, with stride ``tst``.

    target: symmetric, contiguous, of source's dtype, long enough for its stride.
    source: any contiguous torch, NumPy or CuPy array, long enough for its stride; it may be reused on return.
    tst, sst: strides in elements, 1 or more, counted in flattened order from the first element.
    size: the number of elements copied; None means all of source at its stride.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: visible on pe after a later fence or quiet followed by a flag or a signal, or after a barrier.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.6 SHMEM_IPUT.
    """
    if ctx is not None:
        pe = world_pe("iput", ctx, pe)
    found = locate_strided(views, target, source, tst, sst, 1, size, pe, False)
    if found is None:
        sides = (("target", target, tst, "tst"), ("source", source, sst, "sst"))
        ends, (tst, sst), item, count = _strided("iput", sides, size)
        to, place, src, _ = routed("iput", ends, pe)
        found = to, place, src, tst * item, sst * item, item, count
    found[0].put_strided(*found[1:])


def iget(
    target: Array, source: Array, pe: int, tst: int = 1, sst: int = 1, size: int | None = None, ctx: Ctx | None = None
) -> None:
    """Copy ``size`` elements of ``source`` on ``pe``, with stride ``sst``, to the local ``target``, with stride ``tst``.

    target: any contiguous torch, NumPy or CuPy array of source's dtype, long enough for its stride; it holds the data on
        return.
    source: symmetric, contiguous, long enough for its stride.
    tst, sst: strides in elements, 1 or more, counted in flattened order from the first element.
    size: the number of elements copied; None means all of source at its stride.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_IGET.
    """
    if ctx is not None:
        pe = world_pe("iget", ctx, pe)
    found = locate_strided(views, source, target, sst, tst, 1, size, pe, True)
    if found is None:
        sides = (("source", source, sst, "sst"), ("target", target, tst, "tst"))
        ends, (sst, tst), item, count = _strided("iget", sides, size)
        to, place, dest, _ = routed("iget", ends, pe)
        found = to, dest, place, tst * item, sst * item, item, count
    found[0].get_strided(*found[1:])


def _strided(
    routine: str, sides: tuple[tuple[str, Any, int, str], tuple[str, Any, int, str]], size: int | None
) -> tuple[Sides, list[int], int, int]:
    """(the sides, their strides, item bytes, count) of a strided copy.

    sides: (name, array, stride, stride's name), the symmetric one first.
    """
    require_init(routine)
    count = _all_of(routine, sides) if size is None else count_of(routine, "size", size)
    near, step = _side(routine, *sides[0], count)
    own, own_step = _side(routine, *sides[1], count)
    require_one_dtype(routine, (sides[0][0], sides[1][0]), near.dtype, own.dtype)
    if not count:
        return Sides(cpu, cpu, cpu.base, cpu.base, 0), [1, 1], near.itemsize, 0
    require_symmetric(routine, sides[0][0], near, ((count - 1) * step + 1) * near.itemsize)
    require_writable(routine, sides[1][0], sides[1][1])
    steps = [step, own_step] if count > 1 else [1, 1]  # of one element they may be of any size
    return _sides(near, own, count), steps, near.itemsize, count


def _all_of(routine: str, sides: tuple[tuple[str, Any, int, str], ...]) -> int:
    """The number of elements of source at its stride."""
    name, array, stride, stride_name = next(side for side in sides if side[0] == "source")
    _, step = _side(routine, name, array, stride, stride_name, 0)
    return -(-describe(routine, name, array).nelems // step)


def _sides(near: Operand, own: Operand, count: int) -> Sides:
    return Sides(near.heap, own.heap, near.address, own.address, count * near.itemsize)


def _side(routine: str, name: str, array: Any, stride: Any, stride_name: str, count: int) -> tuple[Operand, int]:
    """The array and its stride, checked to be long enough."""
    operand = describe(routine, name, array)
    if isinstance(stride, int) and stride < 1:
        refuse(ArgumentError, routine, stride_name, str(stride), "1 or more")
    step = count_of(routine, stride_name, stride)
    if step < 1:
        refuse(ArgumentError, routine, stride_name, str(step), "1 or more")
    if operand.nelems == 1 and isinstance(array, torch.Tensor):  # where the strided elements begin, as in C
        rest = array.untyped_storage().nbytes() // operand.itemsize - int(array.storage_offset())
        operand = operand._replace(nelems=int(rest))
    if count and (count - 1) * step >= operand.nelems:
        wants = f"at least {(count - 1) * step + 1}, for {count} at stride {step}"
        refuse(OutOfRangeError, routine, name, f"{operand.nelems} elements", wants)
    return operand, step


def ibput(
    target: Array, source: Array, pe: int, tst: int, sst: int, bsize: int, nblocks: int, ctx: Ctx | None = None
) -> None:
    """Copy ``nblocks`` blocks of ``bsize`` elements of ``source`` to ``target`` on ``pe``.

    target: symmetric, contiguous, of source's dtype, long enough for its blocks.
    source: any contiguous torch, NumPy or CuPy array, long enough for its blocks; it may be reused on return.
    tst, sst: elements from the start of one block to the start of the next in target, where blocks must not overlap, and in
        source; 1 or more.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: visible on pe after a later fence or quiet followed by a flag or a signal, or after a barrier.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.6 SHMEM_IBPUT.
    """
    if ctx is not None:
        pe = world_pe("ibput", ctx, pe)
    found = None if nblocks is None else locate_strided(views, target, source, tst, sst, bsize, nblocks, pe, False)
    if found is None:
        near, own, (tst, sst, bsize, nblocks) = _block_sides("ibput", (target, tst), (source, sst), bsize, nblocks)
        item = near.dtype.itemsize
        if not bsize * nblocks:
            require_pe("ibput", pe)
            return
        require_symmetric("ibput", "target", near, _span(tst, bsize, nblocks) * item)
        to, place, source_at, _ = routed("ibput", _sides(near, own, bsize * nblocks), pe)
        found = to, place, source_at, tst * item, sst * item, bsize * item, nblocks
    found[0].put_strided(*found[1:])


def ibget(
    target: Array, source: Array, pe: int, tst: int, sst: int, bsize: int, nblocks: int, ctx: Ctx | None = None
) -> None:
    """Copy ``nblocks`` blocks of ``bsize`` elements of ``source`` on ``pe`` to the local ``target``.

    target: any contiguous torch, NumPy or CuPy array of source's dtype, long enough for its blocks; it holds the data on
        return.
    source: symmetric, contiguous, long enough for its blocks.
    tst, sst: elements from the start of one block to the start of the next in target, where blocks must not overlap, and in
        source; 1 or more.
    pe, ctx: pe counts in the team of ctx; if ctx is None, in TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_IBGET.
    """
    if ctx is not None:
        pe = world_pe("ibget", ctx, pe)
    found = None if nblocks is None else locate_strided(views, source, target, sst, tst, bsize, nblocks, pe, True)
    if found is None:
        own, near, (tst, sst, bsize, nblocks) = _block_sides("ibget", (target, tst), (source, sst), bsize, nblocks)
        item = near.dtype.itemsize
        if not bsize * nblocks:
            require_pe("ibget", pe)
            return
        require_symmetric("ibget", "source", near, _span(sst, bsize, nblocks) * item)
        require_writable("ibget", "target", target)
        to, place, dest, _ = routed("ibget", _sides(near, own, bsize * nblocks), pe)
        found = to, dest, place, tst * item, sst * item, bsize * item, nblocks
    found[0].get_strided(*found[1:])


def _block_sides(
    routine: str, target: tuple[Any, int], source: tuple[Any, int], bsize: int, nblocks: int
) -> tuple[Operand, Operand, tuple[int, int, int, int]]:
    """Target and source with their strides, checked to hold the blocks, and the four numbers as ints."""
    require_init(routine)
    bsize, nblocks = count_of(routine, "bsize", bsize), count_of(routine, "nblocks", nblocks)
    to, tst = _block_side(routine, "target", *target, bsize, nblocks)
    own, sst = _block_side(routine, "source", *source, bsize, nblocks)
    require_one_dtype(routine, ("target", "source"), to.dtype, own.dtype)
    if nblocks == 1:
        tst = sst = bsize  # they may be of any size
    return to, own, (tst, sst, bsize, nblocks)


def _block_side(routine: str, name: str, array: Any, stride: Any, bsize: int, nblocks: int) -> tuple[Operand, int]:
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
    """The number of elements from the first to the last, inclusive."""
    return (nblocks - 1) * stride + bsize if bsize and nblocks else 0
