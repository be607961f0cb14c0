"""Symmetric memory: allocation, and queries about addresses. Spec: OpenSHMEM 1.6, 9.3.

Every routine that allocates or frees is collective over the world, with the same arguments in the same order on all PEs.
If sizes, types or offsets differ, the call is an error on all PEs, and the heap is as before.

The memory behind the heaps: memory/cpu_heap.py, and memory/gpu/heap.py on GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from pyshmem.base.errors import (
    ArgumentError,
    DtypeError,
    HeapExhaustedError,
    NotSymmetricError,
    OutOfRangeError,
    ShmemError,
    refuse,
)
from pyshmem.base.job import job
from pyshmem.diagnosis.host_timeouts import site
from pyshmem.diagnosis.mismatched_calls import CODES, Call
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.memory.allocator import ALIGNMENT
from pyshmem.memory.arguments import (
    Array,
    Operand,
    as_dtype,
    count_of,
    describe,
    integer_of,
    is_int,
    require_init,
    require_symmetric,
)
from pyshmem.memory.heap import Device, Heap, default, heaps
from pyshmem.transport import near_or_far
from pyshmem.transport.teams.compared_calls import Watched

__all__ = [
    "addr_accessible", "align", "calloc", "free", "is_symmetric", "malloc", "malloc_with_hints", "pe_accessible",
    "ptr", "realloc", "team_ptr",
]  # fmt: skip


def allocate(
    routine: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    device: Device | torch.device | None = None,
    alignment: int = ALIGNMENT,
) -> torch.Tensor:
    """Allocate an uninitialised symmetric array, without the final barrier. An empty array takes no memory.

    Errors: HeapExhaustedError on every PE alike; nothing has changed then.
    """
    require_init(routine)
    heap = heap_for(routine, device)
    nbytes = dtype.itemsize
    for extent in shape:
        nbytes *= extent
    _compare_calls(routine, nbytes, f"aligned to {alignment} on {heap.device}")
    if nbytes == 0:
        return heap.tensor(0, shape, dtype)
    offset = _room(routine, heap, nbytes, alignment)
    _note(heap, offset)
    return heap.tensor(heap.base + offset, shape, dtype)


def heap_for(routine: str, device: Any) -> Heap:
    """The heap that ``device`` names: "cpu", "cuda" or a torch device; None is the default heap. Errors: ArgumentError."""
    if device is None:
        return default()
    kind, _, index = str(device).partition(":")
    heap = heaps.get(kind)
    if heap is None or index not in ("", str(heap.index)):
        wants = " or ".join(repr(each) for each in heaps) + _why_no_gpu(kind)
        refuse(ArgumentError, routine, "device", repr(str(device)), wants)
    return heap


def _why_no_gpu(kind: str) -> str:
    return "" if kind != "cuda" or "cuda" in heaps else f"; none in GPU memory, since {job.why_no_gpu}"


def _room(routine: str, heap: Heap, nbytes: int, alignment: int = ALIGNMENT) -> int:
    """The offset of a new allocation. Errors: HeapExhaustedError on every PE alike, or those of differing calls."""
    offset = heap.allocator.allocate(nbytes, alignment)
    if offset is None:
        TEAM_WORLD.meeting.sync(routine, Call(CODES["allocate"], torch.uint8, nbytes, heap.device, -1))
    if offset is None and heap.grow(routine, nbytes, alignment):
        offset = heap.allocator.allocate(nbytes, alignment)
    if offset is None:
        most = heap.allocator.largest_hole(alignment)
        whole = f"{heap.size} bytes" if heap.size % 2**20 else f"{heap.size >> 20} MiB"
        wants = f"at most {most}, the largest free block of the heap of {whole}: raise {job.size_setting}"
        where = f" at a multiple of {alignment}" if alignment > ALIGNMENT else ""
        refuse(HeapExhaustedError, routine, "size", f"{nbytes} bytes{where}", wants)
    return offset


def finish(routine: str, array: torch.Tensor) -> torch.Tensor:
    """End an allocation with a barrier, after the fill, so that peers may use the memory at once.

    Errors: those of differing calls, on all PEs: then the memory is free again.
    """
    if array.numel():
        heap = heaps[array.device.type]
        offset = array.data_ptr() - heap.base
        near_or_far.complete()
        try:
            TEAM_WORLD.meeting.sync(routine, Call(CODES["allocate"], array.dtype, array.numel(), heap.device, offset))
        except (ArgumentError, DtypeError, OutOfRangeError):
            _release(heap, offset)
            raise
    return array


def malloc(nbytes: int, dtype: Any = torch.uint8, device: Device | torch.device | None = None) -> torch.Tensor:
    """Allocate ``nbytes`` of uninitialised symmetric memory and return them as a tensor.

    dtype: of the tensor; nbytes // itemsize elements.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD; a barrier on return, unless the size is 0, which returns an empty tensor.
    Errors: HeapExhaustedError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, on all PEs alike.
    Spec: 9.3 SHMEM_MALLOC.
    """
    return finish("malloc", _bytes("malloc", nbytes, dtype, device))


def malloc_with_hints(
    nbytes: int, hints: int, dtype: Any = torch.uint8, device: Device | torch.device | None = None
) -> torch.Tensor:
    """Allocate ``nbytes`` of uninitialised symmetric memory and return them as a tensor.

    hints: an int that describes the use of the memory; pyshmem ignores it.
    dtype: of the tensor; nbytes // itemsize elements.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD; a barrier on return, unless the size is 0, which returns an empty tensor.
    Errors: HeapExhaustedError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, on all PEs alike.
    Spec: 9.3 SHMEM_MALLOC_WITH_HINTS.
    """
    if not isinstance(integer_of(hints), (int, np.integer)):
        refuse(ArgumentError, "malloc_with_hints", "hints", repr(hints), "an int")
    return finish("malloc_with_hints", _bytes("malloc_with_hints", nbytes, dtype, device))


def calloc(
    count: int, nbytes: int, dtype: Any = torch.uint8, device: Device | torch.device | None = None
) -> torch.Tensor:
    """Allocate ``count`` times ``nbytes`` bytes of symmetric memory, set them to zero and return them as a tensor.

    dtype: of the tensor; count * nbytes // itemsize elements.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD; a barrier on return, unless the size is 0, which returns an empty tensor.
    Errors: HeapExhaustedError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, on all PEs alike.
    Spec: 9.3 SHMEM_CALLOC.
    """
    array = _bytes("calloc", count_of("calloc", "count", count) * count_of("calloc", "nbytes", nbytes), dtype, device)
    array.view(torch.uint8).zero_()
    return finish("calloc", array)


def align(
    alignment: int, nbytes: int, dtype: Any = torch.uint8, device: Device | torch.device | None = None
) -> torch.Tensor:
    """Allocate ``nbytes`` of symmetric memory at a multiple of ``alignment`` and return them as a tensor.

    alignment: a power of two, 8 or more, up to the size of the heap; without virtual memory on a GPU what its driver gives.
    dtype: of the tensor; nbytes // itemsize elements.
    device: "cuda" or "cpu", the heap to allocate on; None means the default heap.
    Order: collective over TEAM_WORLD; a barrier on return, unless the size is 0, which returns an empty tensor.
    Errors: HeapExhaustedError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError, on all PEs alike.
    Spec: 9.3 SHMEM_ALIGN.
    """
    require_init("align")
    power = count_of("align", "alignment", alignment)
    if power < 8 or power & (power - 1):
        refuse(ArgumentError, "align", "alignment", str(power), "a power of two, 8 or more")
    most = heap_for("align", device).alignment
    if power > most:  # the heaps of the PEs lie differently
        refuse(
            HeapExhaustedError, "align", "alignment", str(power), f"at most {most}, as the heaps of all PEs are aligned"
        )
    return finish("align", _bytes("align", nbytes, dtype, device, power))


def realloc(array: Array, nbytes: int) -> torch.Tensor:
    """Resize the allocation ``array`` to ``nbytes``, keep its contents up to the smaller size, and return the new tensor.

    array: a tensor that an allocation returned; it is no longer symmetric afterwards. For None or an empty array realloc
        allocates; for nbytes 0 it frees.
    Order: collective over TEAM_WORLD; a barrier on entry and on return.
    Errors: HeapExhaustedError on every PE, which leaves array as it was; NotSymmetricError, OutOfRangeError,
        NotInitializedError.
    Spec: 9.3 SHMEM_REALLOC.
    """
    if array is None:
        return malloc(nbytes)
    require_init("realloc")
    old = describe("realloc", "array", array, contiguous=False)
    heap, dtype = old.heap, as_dtype("realloc", old.dtype)
    size = count_of("realloc", "nbytes", nbytes) // dtype.itemsize * dtype.itemsize
    if old.nelems == 0:
        return finish("realloc", allocate("realloc", (size // dtype.itemsize,), dtype, heap.device))
    if size == 0:
        free(array)
        return heap.tensor(0, (0,), dtype)
    offset = _allocation("realloc", old)
    _compare_calls("realloc", size, f"at heap offset {offset} on {heap.device}")
    near_or_far.complete()
    TEAM_WORLD.meeting.sync("realloc", Call(CODES["realloc"], torch.uint8, size, heap.device, offset))
    moved = _resized(heap, offset, size)
    return finish("realloc", heap.tensor(heap.base + moved, (size // dtype.itemsize,), dtype))


def free(array: Array) -> None:
    """Free the memory of ``array``.

    array: a tensor that an allocation returned; None and empty arrays are ignored.
    Order: collective over TEAM_WORLD; a barrier on entry, so that no peer still uses the memory. On a GPU heap the barrier
        follows all work of this PE on the GPU.
    Errors: NotSymmetricError for a view, freed or private memory, memory of the pool or of torch's symmetric memory, and
        NotInitializedError; nothing has changed then.
    Spec: 9.3 SHMEM_FREE.
    """
    if array is None:
        return
    require_init("free")
    old = describe("free", "array", array, contiguous=False)
    if old.nelems == 0:
        return
    heap, offset = old.heap, _allocation("free", old)
    _compare_calls("free", 0, f"at heap offset {offset} on {heap.device}")
    heap.near.drain()
    near_or_far.complete()
    TEAM_WORLD.meeting.sync("free", Call(CODES["free"], torch.uint8, old.nelems, heap.device, offset))
    _release(heap, offset)


def ptr(target: Array, pe: int) -> torch.Tensor | None:
    """Return a tensor on the memory of ``target`` on ``pe``, or None if loads and stores cannot reach it.

    target: a symmetric, contiguous array of any shape, with a torch dtype. The returned tensor is not symmetric.
    pe: counts in TEAM_WORLD.
    Order: accesses through the tensor are plain loads and stores; fence and quiet order them.
    Errors: NotSymmetricError, ArgumentError, OutOfRangeError, NotInitializedError.
    Spec: 9.1 SHMEM_PTR.
    """
    require_init("ptr")
    operand = describe("ptr", "target", target)
    if not isinstance(operand.dtype, torch.dtype):
        refuse(ArgumentError, "ptr", "target", f"{operand.dtype} elements", "a dtype of torch; view bytes as uint8")
    require_symmetric("ptr", "target", operand, operand.nelems * operand.itemsize)
    address = near_or_far.mapped_address("ptr", operand.heap, operand.address, pe)
    return None if address is None else operand.heap.tensor(address, operand.shape, operand.dtype)


def team_ptr(target: Array, pe: int, team: Team) -> torch.Tensor | None:
    """Return a tensor on the memory of ``target`` on the PE ``pe`` of ``team``, or None if it cannot be reached.

    target: a symmetric, contiguous array of any shape, with a torch dtype. The returned tensor is not symmetric.
    team: pe counts in it; TEAM_INVALID gives None.
    Order: accesses through the tensor are plain loads and stores; fence and quiet order them.
    Errors: NotSymmetricError, ArgumentError, OutOfRangeError, NotInitializedError.
    Spec: 9.1 SHMEM_TEAM_PTR.
    """
    if isinstance(team, Team) and not team and job.inits:
        return None
    return ptr(target, member("team_ptr", team)._world_pe("team_ptr", pe))


def is_symmetric(array: Any) -> bool:
    """Return whether all of ``array`` lies in live symmetric memory of this PE. Never raises an error."""
    try:
        operand = describe("is_symmetric", "array", array, contiguous=False)
    except ShmemError:
        return False
    if not operand.nelems:
        return False
    unit = operand.itemsize if isinstance(array, torch.Tensor) else 1
    strides = array.stride() if isinstance(array, torch.Tensor) else array.strides
    steps = [(extent - 1) * stride * unit for extent, stride in zip(operand.shape, strides, strict=True)]
    before, after = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    heap = operand.heap
    return heap.allocator.covers(operand.address + before - heap.base, after - before + operand.itemsize)


def pe_accessible(pe: int) -> bool:
    """Return whether ``pe`` is a PE of the job that can be reached; False for anything else.

    Errors: NotInitializedError.
    Spec: 9.1 SHMEM_PE_ACCESSIBLE.
    """
    require_init("pe_accessible")
    number = integer_of(pe)
    return is_int(number) and near_or_far.is_reachable(number)


def addr_accessible(array: Any, pe: int) -> bool:
    """Return whether ``array`` is symmetric and ``pe`` can be reached.

    Errors: NotInitializedError.
    Spec: 9.1 SHMEM_ADDR_ACCESSIBLE.
    """
    require_init("addr_accessible")
    return pe_accessible(pe) and is_symmetric(array)


def _bytes(
    routine: str, nbytes: int, dtype: Any, device: Device | torch.device | None, alignment: int = ALIGNMENT
) -> torch.Tensor:
    kind = as_dtype(routine, dtype)
    return allocate(routine, (count_of(routine, "nbytes", nbytes) // kind.itemsize,), kind, device, alignment)


def _allocation(routine: str, operand: Operand) -> int:
    """The heap offset of the live allocation that starts at the array's address."""
    offset = operand.address - operand.heap.base
    block = operand.heap.allocator.nearest(offset) if operand.heap.owned else None
    if block and block[0] <= offset < block[1] and block[0] in operand.heap.owned:
        refuse(NotSymmetricError, routine, "array", *operand.heap.owned[block[0]])
    if operand.heap.allocator.size_of(offset) is None:
        require_symmetric(routine, "array", operand, operand.itemsize)
        refuse(
            NotSymmetricError, routine, "array", "a view into an allocation", "the array that the allocation returned"
        )
    if not 0 <= offset < operand.heap.size:
        refuse(
            NotSymmetricError, routine, "array", "a registered array", "shmem.unregister, which ends its registration"
        )
    return offset


def _resized(heap: Heap, offset: int, nbytes: int) -> int:
    """Resize an allocation in place or move it, and return the new offset. An error leaves it unchanged."""
    if heap.allocator.resize(offset, nbytes):
        heap.note_use()
        return offset
    moved = _room("realloc", heap, nbytes)
    old = heap.allocator.size_of(offset) or 0
    heap.near.put(heap.base + moved, heap.base + offset, min(old, nbytes))
    _release(heap, offset)
    _note(heap, moved)
    return moved


def _release(heap: Heap, offset: int) -> None:
    heap.allocator.release(offset)
    heap.sites.pop(offset, None)
    heap.note_use()


def _note(heap: Heap, offset: int) -> None:
    """Note a new allocation."""
    heap.note_use()
    if job.debug:
        heap.sites[offset] = site()


def _compare_calls(routine: str, nbytes: int, detail: str) -> None:
    """In debug mode, check that all PEs make the same call. Errors: OutOfRangeError, ArgumentError, on all PEs."""
    if job.debug:
        cast(Watched, TEAM_WORLD.meeting).compare(routine, f"of {nbytes} bytes {detail}")
