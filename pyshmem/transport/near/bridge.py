"""The routes for copies between GPU memory and CPU memory, complete on return; and strided tensors on mapped memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import Heap
from pyshmem.native import _native
from pyshmem.transport.route import Route

if TYPE_CHECKING:
    from pyshmem.transport.near.gpu import GpuNear

WORDS = {4: torch.int32, 8: torch.int64}


class Bridge(Route):
    """The route for copies between symmetric memory of one kind and private memory of the other kind. It has no atomics."""

    def __init__(self, gpu: GpuNear, symmetric: Heap) -> None:
        """Make the route. symmetric: the heap of the symmetric side."""
        self._gpu, self._symmetric = gpu, symmetric
        self._private = cpu if symmetric.streams else gpu.heap

    def put(self, place: int, source: int, nbytes: int) -> None:
        if self._is_word(nbytes):
            self._gpu.store(place, source, nbytes)
        else:
            self._copy(place, source, nbytes)

    def get(self, dest: int, place: int, nbytes: int) -> None:
        if self._is_word(nbytes):
            _native.copy(dest, self._gpu.fetch(place, nbytes), nbytes)
        else:
            self._copy(dest, place, nbytes)

    def _is_word(self, nbytes: int) -> bool:
        """Return whether a kernel must copy the bytes because AMD's copy engines may tear a word of GPU memory."""
        return self._gpu.moves_words and nbytes in WORDS and self._symmetric.streams

    def _copy(self, dest: int, source: int, nbytes: int) -> None:
        gpu = self._gpu
        gpu.refuse_capture("a copy from or to host memory")
        stream = gpu.heap.stream()
        if nbytes:
            gpu.heap.driver.copy(dest, source, nbytes, stream)
        gpu.heap.driver.synchronize(stream)

    def put_strided(self, place: int, source: int, place_step: int, source_step: int, item: int, count: int) -> None:
        """Copy by torch, which packs data that are not contiguous."""
        if count:
            bits = place | source | place_step | source_step
            own = spread(self._private, source, source_step, item, count, bits)
            spread(self._symmetric, place, place_step, item, count, bits).copy_(own)
            self._gpu.heap.synchronize()

    def get_strided(self, dest: int, place: int, dest_step: int, place_step: int, item: int, count: int) -> None:
        if count:
            bits = dest | place | dest_step | place_step
            there = spread(self._symmetric, place, place_step, item, count, bits)
            spread(self._private, dest, dest_step, item, count, bits).copy_(there)
            self._gpu.heap.synchronize()

    def settle(self, ctx: Any = None) -> None:
        """Does nothing: every copy is complete on return."""


def spread(heap: Heap, address: int, step: int, item: int, count: int, bits: int) -> torch.Tensor:
    """Return a (count, words) tensor of items at a distance of ``step`` bytes, in the widest words that ``bits`` allows."""
    width = next(size for size in (8, 4, 2, 1) if not (bits | item) % size)
    span = (count - 1) * step + item
    flat = torch.utils.dlpack.from_dlpack(_native.bytes_at(address, span, heap.device_type, heap.index))
    words = flat.view({8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[width])
    return words.as_strided((count, item // width), (step // width, 1))
