"""Copies between GPU memory and the CPU's, and the view of memory as words at a stride."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pyshmem.runtime import _native
from pyshmem.runtime.heap import Heap, cpu

if TYPE_CHECKING:
    from pyshmem.runtime.gpu.heap import GpuHeap

WORDS = {4: torch.int32, 8: torch.int64}


class Bridge:
    """Copies between a heap and the other kind of memory, or from the GPU's to private memory: done on return."""

    def __init__(self, gpu: GpuHeap, heap: Heap) -> None:
        self._gpu, self._heap = gpu, heap

    @property
    def deltas(self) -> dict[Any, int]:
        return self._heap.deltas

    def copy(self, dest: int, source: int, nbytes: int) -> None:
        gpu = self._gpu
        gpu._refuse_capture("a copy from or to host memory")
        if gpu.moves_words and nbytes in WORDS and self._heap is gpu:
            self._copy_word(dest, source, nbytes)
            return
        stream = gpu._stream()
        if nbytes:
            gpu.driver.copy(dest, source, nbytes, stream)
        gpu.driver.synchronize(stream)

    def _copy_word(self, dest: int, source: int, nbytes: int) -> None:
        """One word from or to private CPU memory, by a kernel."""
        if self._heap.holds(dest):
            self._gpu.store(dest, source, nbytes)
        else:
            _native.copy(dest, self._gpu.fetch(source, nbytes), nbytes)

    def copy_nbi(self, dest: int, source: int, nbytes: int, ctx: Any, private: Any) -> None:
        self.copy(dest, source, nbytes)

    def copy_strided(self, dest: int, source: int, dest_step: int, source_step: int, item: int, count: int) -> None:
        """Through torch, which packs what is not contiguous."""
        gpu, bits = self._gpu, dest | source | dest_step | source_step
        if not count:
            return
        other = cpu if self._heap is gpu else gpu
        into, from_ = (self._heap, other) if self._heap.holds(dest) else (other, self._heap)
        spread(into, dest, dest_step, item, count, bits).copy_(spread(from_, source, source_step, item, count, bits))
        gpu.driver.synchronize(gpu._stream())

    def settle(self, ctx: Any = None) -> None:
        """Every copy was done on return."""


def spread(heap: Heap, address: int, step: int, item: int, count: int, bits: int) -> torch.Tensor:
    """A (count, words) tensor of items whose starts lie ``step`` bytes apart, in the widest words all addresses allow."""
    width = next(size for size in (8, 4, 2, 1) if not (bits | item) % size)
    span = (count - 1) * step + item
    flat = torch.utils.dlpack.from_dlpack(_native.bytes_at(address, span, heap.device_type, heap.index))
    words = flat.view({8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[width])
    return words.as_strided((count, item // width), (step // width, 1))
