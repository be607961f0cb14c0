"""Memory of others as symmetric memory, without a copy: register and unregister."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch

from pyshmem.base.encoding import passed
from pyshmem.base.errors import (
    ArgumentError,
    DtypeError,
    HeapExhaustedError,
    NotSymmetricError,
    UnreachableError,
    grouped,
    listed,
    refuse,
)
from pyshmem.base.job import job
from pyshmem.diagnosis.mismatched_calls import CODES, Call
from pyshmem.host.init import listeners
from pyshmem.host.teams import TEAM_WORLD
from pyshmem.memory.arguments import Array, Operand, an, describe, name_of, require_init
from pyshmem.memory.gpu.driver import DriverError
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.gpu.mapping import EVEN_HIP, VmmMapping
from pyshmem.memory.heap import Heap
from pyshmem.memory.window import Chunk, Handles, Pages, Window
from pyshmem.transport import near_or_far

__all__ = ["register", "unregister"]

_POOL = "a tensor made in `with shmem.pool():`, or shmem.as_symmetric(x), which copies"
_WANTS = {
    "cpu": f"x.share_memory_() first, once, which moves the tensor to memory that can be shared; {_POOL}",
    "cuda": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, so that torch takes memory that can be "
    f"shared; {_POOL}",
}


@passed
class _Offer(NamedTuple):
    """What a PE tells the others of its tensor.

    fault: why it has none, and what it wants.  inside: where it begins in the first chunk.  place: where the chunks are
    mapped already, or None.
    """

    fault: tuple[str, str] | None
    dtype: Any = None
    shape: tuple[int, ...] = ()
    inside: int = 0
    chunks: tuple[Chunk, ...] = ()
    place: int | None = None


class _Registration(NamedTuple):
    """held: the tensor, whose memory must last.  start: where it is in the window; mapped: where its first chunk is."""

    held: Any
    heap: Heap
    start: int
    mapped: int


_windows: dict[str, Window] = {}
_registrations: dict[int, _Registration] = {}


def register(tensor: Array) -> torch.Tensor:
    """Make the memory of ``tensor`` symmetric until unregister, without a copy, and return a tensor on the same memory.

    tensor: contiguous, of one dtype on all PEs; each may give another size. It is kept alive. In GPU memory: what torch has
        allocated with expandable_segments, or other virtual memory; in CPU memory: what share_memory_ of torch has moved.
    Returns: a symmetric array, at another address: of tensor's shape, or if shapes differ of one dimension, with the first
        elements, as many as each PE has. A kernel that waits for data of peers reads them by this array.
    Order: collective over TEAM_WORLD, whose PEs are on one node; a barrier on return.
    Errors: ArgumentError, DtypeError, NotSymmetricError, HeapExhaustedError, UnreachableError, NotInitializedError, on all
        PEs alike.
    """
    require_init("register")
    operand = describe("register", "tensor", tensor)
    heap, nbytes = operand.heap, operand.nelems * operand.itemsize
    TEAM_WORLD.meeting.sync("register", Call(CODES["register"], torch.uint8, 0, heap.device))
    assert job.comm is not None
    offer, sources = _offer(operand, tensor, nbytes)
    try:
        offers = job.comm.allgather(offer)
        _require_alike(offers, heap)
        window = _window(heap)
        places = {each.place for each in offers}
        if len(places) == 1 and offer.place is not None:
            mapped: int | None = window.share(offer.place)
        else:
            given, sources = sources, []  # the window releases them
            mapped = window.add(operand.address - offer.inside, given, [offers[pe].chunks for pe in job.node_pes])
    except (OSError, DriverError) as error:
        refuse(HeapExhaustedError, "register", "tensor", f"an error of the system: {error}", "memory that PEs can map")
    finally:
        _release(heap, sources)
    if mapped is None:
        wants = f"at most {heap.stride} in all, what lies between two PEs' heaps: raise {job.size_setting}"
        refuse(HeapExhaustedError, "register", "tensor", f"{nbytes} bytes, for which no room is left", wants)
    counts = [torch.Size(each.shape).numel() for each in offers]
    alike = len({each.shape for each in offers}) == 1
    start, size = mapped + offer.inside, min(counts) * operand.itemsize
    heap.allocator.adopt(start - heap.base, start - heap.base + size)
    _registrations[start] = _Registration(tensor, heap, start, mapped)
    return heap.tensor(start, operand.shape if alike else (min(counts),), operand.dtype)


def unregister(array: Array) -> None:
    """End the registration whose array register has returned. The tensor itself lives on, private again.

    array: neither it nor a view of it may be read or written any more: its addresses have no memory.
    Order: collective over TEAM_WORLD; a barrier on entry, so that no peer still uses the memory. On a GPU heap the barrier
        follows all work of this PE on the GPU. All PEs end registrations in the same order, which may be any.
    Errors: NotSymmetricError, NotInitializedError; nothing has changed then.
    """
    require_init("unregister")
    operand = describe("unregister", "array", array)
    found = _registrations.get(operand.address)
    if found is None:
        got = f"{an(name_of(operand.dtype))} array of shape {operand.shape} that is not registered"
        refuse(NotSymmetricError, "unregister", "array", got, "what shmem.register has returned")
    window = _windows[found.heap.device]
    found.heap.near.drain()
    near_or_far.complete()
    place = window.place(found.start)
    TEAM_WORLD.meeting.sync("unregister", Call(CODES["unregister"], torch.uint8, 0, found.heap.device, place))
    _end(found)


def _end(found: _Registration) -> None:
    del _registrations[found.start]
    found.heap.allocator.disown(found.start - found.heap.base)
    _windows[found.heap.device].remove(found.mapped)


def _offer(operand: Operand, tensor: Any, nbytes: int) -> tuple[_Offer, list[Chunk]]:
    """What this PE offers, and its chunks, which are this PE's to release."""
    heap = operand.heap
    if not nbytes:
        return _Offer(("an empty tensor", "one element or more")), []
    if heap.allocator.covers(operand.address - heap.base, nbytes):
        return _Offer(("a tensor that is symmetric already", "private memory; use this tensor as it is")), []
    try:
        first, sources = _handles(operand, nbytes) if heap is gpu else _pages(operand, tensor, nbytes)
    except (OSError, DriverError) as error:
        return _Offer((f"a tensor in memory that cannot be shared: {error}", _WANTS[heap.device])), []
    told, inside = tuple(chunk._replace(source=0) for chunk in sources), operand.address - first
    place = _place(heap, sources, inside, nbytes)
    return _Offer(None, operand.dtype, operand.shape, inside, told, place), sources


def _place(heap: Heap, sources: list[Chunk], inside: int, nbytes: int) -> int | None:
    """Where the chunks of a tensor are mapped already, and no part of it is registered; None if that is nowhere."""
    window = _windows.get(heap.device)
    place = None if window is None else window.locate(sources)
    if window is None or place is None:
        return None
    return None if heap.allocator.overlaps(window.address(place) + inside - heap.base, nbytes) else place


def _pages(operand: Operand, tensor: Any, nbytes: int) -> tuple[int, list[Chunk]]:
    """The address of the first page and the chunk of pages of a tensor in torch's shared memory. Errors: OSError."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_shared():  # type: ignore[no-untyped-call]
        raise OSError("it is private to this process")
    storage = tensor.untyped_storage()
    unit, base = Pages.unit, storage.data_ptr()
    if base % unit:  # torch's count of its users lies before it; _share_fd_cpu_ would move it
        raise OSError('its sharing strategy was "file_system", not "file_descriptor"')
    fd, _ = storage._share_fd_cpu_()
    if fd < 0:
        raise OSError("it is the memory of a file")
    start = (operand.address - base) // unit * unit
    length = -(-(operand.address + nbytes - base - start) // unit) * unit
    return base + start, [Chunk(os.dup(fd), start, length)]


def _handles(operand: Operand, nbytes: int) -> tuple[int, list[Chunk]]:
    """The address of the first chunk and the chunks of virtual memory that hold a tensor. Errors: DriverError."""
    sources: list[Chunk] = []
    first, place = 0, operand.address
    try:
        while place < operand.address + nbytes:
            handle, start, size = gpu.driver.retain(place)
            sources.append(Chunk(handle, 0, size))
            first, place = first or start, start + size
    except DriverError:
        _release(gpu, sources)
        raise
    return first, sources


def _release(heap: Heap, sources: list[Chunk]) -> None:
    for chunk in sources:
        gpu.driver.release(chunk.source) if heap is gpu else os.close(chunk.source)


def _require_alike(offers: list[_Offer], heap: Heap) -> None:
    """Errors, on all PEs: those of tensors that cannot be registered together."""
    for pe, offer in enumerate(offers):
        if offer.fault:
            whose = "" if pe == job.my_pe else f", on PE {pe}"
            refuse(ArgumentError, "register", "tensor", offer.fault[0] + whose, offer.fault[1])
    if heap.far_deltas or not heap.stride:
        got = "PEs on other nodes" if heap.far_deltas else f"GPU memory that is shared by IPC: {gpu.choice.why}"
        refuse(UnreachableError, "register", "tensor", got, "PEs whose heaps are mapped in one range of addresses")
    if heap is gpu and gpu.driver.vendor == "hip" and gpu.driver.version < EVEN_HIP:
        got = f"HIP {gpu.driver.version}, in which all that a range holds has one size"
        refuse(UnreachableError, "register", "tensor", got, f"ROCm 7.14; {_POOL}")
    _require_one("dtype", DtypeError, [name_of(offer.dtype) for offer in offers], "one dtype on all PEs")
    begins = [f"{offer.inside} bytes after the start of its memory" for offer in offers]
    wants = "a tensor that begins alike on all PEs: let them allocate alike, or register the storage that it lies in"
    _require_one("tensor", ArgumentError, begins, wants)


def _require_one(argument: str, kind: type[Any], each: list[str], wants: str) -> None:
    if len(set(each)) > 1:
        got = " and ".join(f"{text} on {listed(pes)}" for text, pes in grouped(dict(enumerate(each))).items())
        refuse(kind, "register", argument, got, wants)


def registered_at(address: int) -> tuple[int, int] | None:
    """(PE, place alike on all PEs) of memory that a PE has registered on the CPU; None if the address is elsewhere."""
    window = _windows.get("cpu")
    found = window.find(address) if window is not None else None
    return None if found is None else (job.node_pes[found[0]], found[1])


def _window(heap: Heap) -> Window:
    """The window beside the heap. Collective over the world."""
    if heap.device not in _windows:
        memory: Pages | Handles = Pages()
        if heap is gpu:
            assert isinstance(gpu.mapping, VmmMapping)
            memory = Handles(gpu.driver, gpu.mapping.unit)
        assert job.comm is not None
        assert job.node_comm is not None
        _windows[heap.device] = Window(memory, job.comm, job.node_comm, heap.stride)
    return _windows[heap.device]


def _forget(begun: bool) -> None:
    """The job begins, or it ends and takes all registrations with it."""
    if not begun:
        for found in list(_registrations.values()):
            _end(found)
        for window in _windows.values():
            window.close()
        _windows.clear()


listeners.append(_forget)
