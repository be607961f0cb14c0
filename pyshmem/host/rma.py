"""Remote memory access: put, get, p, g and the strided forms. Spec: OpenSHMEM 1.6, 9.6.

On CPU heaps all of them are complete when they return, the non-blocking ones too: both are within the spec, and a copy by
this core is the fastest there is. On GPU heaps copies are enqueued on torch's current stream, non-blocking ones on a stream
of the context; whatever has one side in host memory is done on return. An aligned word of at most 8 bytes is written by a
single store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pyshmem.host.amo import FETCH, SET
from pyshmem.host.contexts import Ctx, world_pe
from pyshmem.runtime import _native
from pyshmem.runtime._native import locate
from pyshmem.runtime.arguments import (
    Operand,
    between,
    count_of,
    delta_to,
    describe,
    require_init,
    require_symmetric,
    require_writable,
    scalar,
    scalar_of,
    transfer,
    word,
)
from pyshmem.runtime.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.runtime.heap import Heap, cpu, views

_PUT_NAMES = ("target", "source")
_GET_NAMES = ("source", "target")


def put(target: Any, source: Any, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` to ``target`` on ``pe``.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: any contiguous torch, NumPy or CuPy array; it may be reused on return.
    size: the number of elements; None means all of source.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
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
        heap, dest, src, nbytes = transfer("put", _PUT_NAMES, target, source, size)
        found = heap, dest + delta_to("put", pe, heap), src, nbytes
    heap, there, src, nbytes = found
    heap.copy(there, src, nbytes)


def get(target: Any, source: Any, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` on ``pe`` to the local ``target``, which holds the data on return.

    target: any contiguous torch, NumPy or CuPy array of source's dtype.
    source: symmetric, contiguous, with at least size elements.
    size: the number of elements; None means as many as target has.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_GET.
    """
    if ctx is not None:
        pe = world_pe("get", ctx, pe)
    found = locate(views, source, target, size, pe)
    if found is None:
        heap, src, dest, nbytes = transfer("get", _GET_NAMES, source, target, size)
        found = heap, src + delta_to("get", pe, heap), dest, nbytes
    heap, there, dest, nbytes = found
    heap.copy(dest, there, nbytes)


def put_nbi(target: Any, source: Any, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` to ``target`` on ``pe``; the call may return before source is read.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: any contiguous torch, NumPy or CuPy array. It may be reused after quiet; until then pyshmem holds a reference to
        it.
    size: the number of elements; None means all of source.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: complete after quiet. Visible on pe after a later fence or quiet followed by a flag or a signal, or after a
        barrier.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.6 SHMEM_PUT_NBI.
    """
    if ctx is not None:
        pe = world_pe("put_nbi", ctx, pe)
    heap, dest, src, nbytes = transfer("put_nbi", _PUT_NAMES, target, source, size)
    heap.copy_nbi(dest + delta_to("put_nbi", pe, heap), src, nbytes, ctx, source)


def get_nbi(target: Any, source: Any, pe: int, size: int | None = None, ctx: Ctx | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` on ``pe`` to the local ``target``, which holds the data after quiet.

    target: any contiguous torch, NumPy or CuPy array of source's dtype. Until quiet pyshmem holds a reference to it.
    source: symmetric, contiguous, with at least size elements.
    size: the number of elements; None means as many as target has.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: complete after quiet or a barrier. Sees all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_GET_NBI.
    """
    if ctx is not None:
        pe = world_pe("get_nbi", ctx, pe)
    heap, src, dest, nbytes = transfer("get_nbi", _GET_NAMES, source, target, size)
    heap.copy_nbi(dest, src + delta_to("get_nbi", pe, heap), nbytes, ctx, target)


def p(target: Any, value: Any, pe: int, ctx: Ctx | None = None) -> None:
    """Write ``value`` to the one element of ``target`` on ``pe``, with a single store if it has at most 8 bytes.

    target: one symmetric element of any dtype.
    value: a scalar, or an array of one element, that the dtype can hold.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: visible on pe after a later fence or quiet followed by a flag or a signal, or after a barrier.
    Errors: NotSymmetricError, OutOfRangeError, ArgumentError, UnreachableError, NotInitializedError, and DtypeError for a
        value that the dtype cannot hold; nothing is written then.
    Spec: 9.6 SHMEM_P.
    """
    if ctx is not None:
        pe = world_pe("p", ctx, pe)
    heap, address, dtype = word("p", "target", target)
    delta = delta_to("p", pe, heap)
    if heap is not cpu and dtype in SET:
        heap.amo("set", dtype, address + delta, scalar("p", "value", value, dtype), fetch=False)
        return
    if type(value) is not int or dtype not in _INTEGERS:
        _store("p", heap, address + delta, dtype, value)
        return
    try:
        SET[dtype](address + delta, value)
    except OverflowError:
        scalar("p", "value", value, dtype)


def g(source: Any, pe: int, ctx: Ctx | None = None) -> Any:
    """Return the one element of ``source`` on ``pe`` as a Python number.

    source: one symmetric element of any dtype.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError.
    Spec: 9.6 SHMEM_G.
    """
    if ctx is not None:
        pe = world_pe("g", ctx, pe)
    heap, address, dtype = word("g", "source", source)
    delta = delta_to("g", pe, heap)
    at = heap.fetch(address + delta, dtype.itemsize)
    fetch = FETCH.get(dtype)
    if fetch is not None:
        return fetch(at)
    landing = torch.empty(1, dtype=dtype, device="cpu") if isinstance(dtype, torch.dtype) else np.empty(1, dtype)
    _native.copy(describe("g", "source", landing).address, at, landing.itemsize)
    return landing[0].item()


_INTEGERS = frozenset((torch.int32, torch.int64, torch.uint32, torch.uint64))


def _store(routine: str, heap: Heap, address: int, dtype: Any, value: Any) -> None:
    """Store a value of any element type: built in private memory, then written as one word where it is one."""
    if isinstance(dtype, torch.dtype):
        element: Any = torch.tensor([scalar(routine, "value", value, dtype)], dtype=dtype, device="cpu")
    else:
        if not isinstance(value, np.generic):  # which may be longer than any Python number
            value = scalar_of(value)
        if not isinstance(value, (int, float, complex, np.generic)):
            refuse(
                DtypeError,
                routine,
                "value",
                f"a {type(value).__name__}",
                "a Python or NumPy scalar, or an array of one",
            )
        element = np.array([value], dtype)
    heap.store(address, describe(routine, "value", element).address, element.itemsize)


def iput(target: Any, source: Any, pe: int, tst: int, sst: int, size: int, ctx: Ctx | None = None) -> None:
    """Copy ``size`` elements of ``source``, with stride ``sst``, to ``target`` on ``pe``, with stride ``tst``.

    target: symmetric, contiguous, of source's dtype, long enough for its stride.
    source: any contiguous torch, NumPy or CuPy array, long enough for its stride; it may be reused on return.
    tst, sst: strides in elements, 1 or more, counted in flattened order from the first element.
    size: the number of elements copied.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: visible on pe after a later fence or quiet followed by a flag or a signal, or after a barrier.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        written then.
    Spec: 9.6 SHMEM_IPUT.
    """
    if ctx is not None:
        pe = world_pe("iput", ctx, pe)
    sides = (("target", target, tst, "tst"), ("source", source, sst, "sst"))
    heap, dest, src, (tst, sst), item, count = _strided("iput", sides, size)
    heap.copy_strided(dest + delta_to("iput", pe, heap), src, tst * item, sst * item, item, count)


def iget(target: Any, source: Any, pe: int, tst: int, sst: int, size: int, ctx: Ctx | None = None) -> None:
    """Copy ``size`` elements of ``source`` on ``pe``, with stride ``sst``, to the local ``target``, with stride ``tst``.

    target: any contiguous torch, NumPy or CuPy array of source's dtype, long enough for its stride; it holds the data on
        return.
    source: symmetric, contiguous, long enough for its stride.
    tst, sst: strides in elements, 1 or more, counted in flattened order from the first element.
    size: the number of elements copied.
    pe, ctx: pe counts in the team of ctx; None is CTX_DEFAULT, whose team is TEAM_WORLD.
    Order: reads the memory of pe as it is now, with all data that were ordered before a flag this PE has waited for.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError; nothing is
        copied then.
    Spec: 9.6 SHMEM_IGET.
    """
    if ctx is not None:
        pe = world_pe("iget", ctx, pe)
    sides = (("source", source, sst, "sst"), ("target", target, tst, "tst"))
    heap, src, dest, (sst, tst), item, count = _strided("iget", sides, size)
    heap.copy_strided(dest, src + delta_to("iget", pe, heap), tst * item, sst * item, item, count)


def _strided(
    routine: str, sides: tuple[tuple[str, Any, int, str], tuple[str, Any, int, str]], size: int
) -> tuple[Any, int, int, list[int], int, int]:
    """(heap or Bridge, symmetric address, private address, their strides, item bytes, count) of a strided copy.

    sides: (name, array, stride, stride's name), the symmetric one first.
    """
    require_init(routine)
    count = count_of(routine, "size", size)
    near, step = _side(routine, *sides[0], count)
    own, own_step = _side(routine, *sides[1], count)
    if near.dtype != own.dtype:
        refuse(
            DtypeError,
            routine,
            sides[1][0],
            f"{own.dtype} elements",
            f"the {near.dtype} of {sides[0][0]}: no casting between arrays",
        )
    if not count:
        return cpu, cpu.base, cpu.base, [step, own_step], near.itemsize, 0
    require_symmetric(routine, sides[0][0], near, ((count - 1) * step + 1) * near.itemsize)
    require_writable(routine, sides[1][0], sides[1][1])
    return between(near.heap, own.heap), near.address, own.address, [step, own_step], near.itemsize, count


def _side(routine: str, name: str, array: Any, stride: Any, stride_name: str, count: int) -> tuple[Operand, int]:
    """The array and its stride, once it is long enough."""
    operand = describe(routine, name, array)
    step = count_of(routine, stride_name, stride)
    if step < 1:
        refuse(ArgumentError, routine, stride_name, str(step), "1 or more")
    if count and (count - 1) * step >= operand.nelems:
        wants = f"at least {(count - 1) * step + 1}, for {count} at stride {step}"
        refuse(OutOfRangeError, routine, name, f"{operand.nelems} elements", wants)
    return operand, step
