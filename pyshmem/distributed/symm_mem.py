"""torch's symmetric memory in a symmetric heap, for programs that import torch.distributed._symmetric_memory.

``empty`` allocates, and ``rendezvous`` gives what torch's has: addresses of all members' buffers and signal pads for
kernels, tensors on them, barriers and signals. torch's own operators, torch.ops.symm_mem.*, find memory by a registry of
torch's C++ library, and do not take this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import pyshmem as shmem
from pyshmem import device as dev
from pyshmem.runtime.errors import (
    NotSymmetricError,
    OutOfRangeError,
    UnreachableError,
    WaitTimeoutError,
    refuse,
)
from pyshmem.runtime.job import job

__all__ = ["SymmetricMemory", "empty", "rendezvous"]

_PAD = 2048  # bytes of a signal pad, as torch's
_ALIGNED = 16
_blocks: dict[int, tuple[torch.Tensor, int]] = {}  # what empty has allocated, and the bytes before its pad, by address


def empty(*size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """Allocate a tensor in the symmetric heap, and a signal pad of zeros behind it. The tensor is zero as well.

    size: the shape, as that of torch.empty.  dtype, device: None means torch's default; of a device only the kind counts.
    Order: collective over all PEs, not over a group, with the same size; a barrier on return. shmem.free frees it.
    Errors: those of shmem.zeros.
    """
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], Sequence) else size
    dtype = dtype or torch.get_default_dtype()
    kind = torch.device(device or torch.get_default_device()).type
    nbytes = prod(shape) * dtype.itemsize
    whole = -(-nbytes // _ALIGNED) * _ALIGNED
    block = shmem.zeros(whole + _PAD, dtype=torch.uint8, device=kind)
    _blocks[block.data_ptr()] = block, whole
    return block[:nbytes].view(dtype).view(shape)


def rendezvous(tensor: torch.Tensor, group: dist.ProcessGroup | str | None = None) -> SymmetricMemory:
    """Return the buffers and signal pads of a group's members that belong to ``tensor``.

    tensor: of ``empty``, or a part of one.  group: a process group in a job where rank i is PE i, or its name; None is the
        default group.
    Order: local: the memory of peers is there since ``empty``.
    Errors: NotSymmetricError for another tensor; UnreachableError for members on other nodes.
    """
    storage = tensor.untyped_storage()
    found = _blocks.get(storage.data_ptr())
    # what has been allocated later, at the address of a block that is free, has another storage
    if found is None or not shmem.is_symmetric(found[0]) or found[0].untyped_storage()._cdata != storage._cdata:
        got = f"a tensor of shape {tuple(tensor.shape)} that is not of pyshmem.distributed.symm_mem.empty, or is free"
        refuse(NotSymmetricError, "rendezvous", "tensor", got, "one that is")
    if isinstance(group, str):
        group = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
    return SymmetricMemory(*found, tensor, dist.get_process_group_ranks(group or dist.group.WORLD))


class SymmetricMemory:
    """What rendezvous returns, under the names of torch's class. Ranks are those of the group.

    buffer_ptrs, signal_pad_ptrs: the addresses of all members' buffers and pads, here.  buffer_ptrs_dev,
    signal_pad_ptrs_dev: the address of an array of them, in the same memory.  offset: bytes of the buffer before the tensor.
    Signal pads are zero whenever nobody waits; (channel, rank) is word channel * world_size + rank.
    """

    multicast_ptr = 0

    def __init__(self, block: torch.Tensor, whole: int, tensor: torch.Tensor, pes: Sequence[int]) -> None:
        self._pes, self._tensor = pes, tensor
        self.rank, self.world_size, self.device = pes.index(job.my_pe), len(pes), block.device
        self.buffer_size, self.signal_pad_size = whole, _PAD
        self.offset = tensor.data_ptr() - block.data_ptr()
        self._buffers = [_on(block[:whole], pe) for pe in pes]
        self._pads = [_on(block[whole:], pe) for pe in pes]
        self._words = block[whole:].view(torch.int32)
        self.buffer_ptrs = [each.data_ptr() for each in self._buffers]
        self.signal_pad_ptrs = [each.data_ptr() for each in self._pads]
        self._arrays = torch.tensor([self.buffer_ptrs, self.signal_pad_ptrs, list(pes)], device=self.device)
        self.buffer_ptrs_dev, self.signal_pad_ptrs_dev = (each.data_ptr() for each in self._arrays[:2])

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """Return a tensor on a member's buffer, ``storage_offset`` elements after its start."""
        return _part("get_buffer", self._buffers[rank], sizes, dtype, storage_offset)

    def get_signal_pad(
        self, rank: int, sizes: Sequence[int] = (), dtype: torch.dtype | None = None, storage_offset: int = 0
    ) -> torch.Tensor:
        """Return a tensor on a member's signal pad: all of it, of uint32, if no size is given."""
        dtype = dtype or torch.uint32
        whole = (_PAD // dtype.itemsize - storage_offset,)
        return _part("get_signal_pad", self._pads[rank], sizes or whole, dtype, storage_offset)

    def get_remote_tensor(self, peer: int, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor on a member's buffer, as far within it as the tensor of rendezvous."""
        return self.get_buffer(peer, sizes, dtype, self.offset // dtype.itemsize)

    def has_multicast_support(self) -> bool:
        return False

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """Wait for all members, whose accesses before it come before those after it; in GPU memory on the current stream.

        timeout_ms: in CPU memory when to give up; 0, and in GPU memory, PYSHMEM_WAIT_TIMEOUT.
        """
        self._meet("barrier", range(self.world_size), range(self.world_size), channel, timeout_ms)

    def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Signal a member, after all accesses before the call, once it has taken the signal before.

        In GPU memory the kernel waits for that without a limit: a member that never takes it lets the stream hang.
        """
        self._meet("put_signal", [dst_rank], [], channel, timeout_ms)

    def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Wait for a signal of a member, and take it."""
        self._meet("wait_signal", [], [src_rank], channel, timeout_ms)

    def _meet(self, routine: str, to: Sequence[int], of: Sequence[int], channel: int, timeout_ms: int) -> None:
        first = channel * self.world_size
        if not 0 <= first <= len(self._words) - self.world_size:
            most = len(self._words) // self.world_size - 1
            refuse(OutOfRangeError, routine, "channel", channel, f"0 to {most}, for which the pad has room")
        words = self._words[first : first + self.world_size]
        if self.device.type == "cuda":
            peers = to or of
            _meet[(len(peers),)](
                shmem.device_context(), words, self._arrays[2], self.rank, peers[0], PUT=bool(to), TAKE=bool(of)
            )
            return
        shmem.quiet()
        for rank in to:
            _until(routine, partial(_swap, words[self.rank], 0, 1, self._pes[rank]), timeout_ms)
        for rank in of:
            _until(routine, partial(_swap, words[rank], 1, 0, job.my_pe), timeout_ms)


@triton.jit
def _meet(ctx, words, pes, me, first, PUT: tl.constexpr, TAKE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program for each member, from ``first`` on: signal it, and take its signal. words: of this channel."""
    rank = first + tl.program_id(0)
    if PUT:
        pe = tl.load(pes + rank)
        while dev.atomic_compare_swap(ctx, words + me, 0, 1, pe) != 0:
            pass
    if TAKE:
        dev.wait_until(ctx, words + rank, dev.CMP_EQ, 1)
        tl.atomic_xchg(words + rank, 0, sem="release", scope="sys")


def _swap(word: torch.Tensor, old: int, new: int, pe: int) -> bool:
    return bool(shmem.atomic_compare_swap(word, old, new, pe) == old)


def _on(part: torch.Tensor, pe: int) -> torch.Tensor:
    found = shmem.ptr(part, pe)
    if found is None:
        refuse(UnreachableError, "rendezvous", "group", f"PE {pe}, whose memory is not mapped here", "PEs of one node")
    return found


def _part(routine: str, memory: torch.Tensor, sizes: Sequence[int], dtype: torch.dtype, first: int) -> torch.Tensor:
    start, nbytes = first * dtype.itemsize, prod(sizes) * dtype.itemsize
    if first < 0 or start + nbytes > memory.numel():
        wants = f"at most the {memory.numel()} bytes of it"
        refuse(OutOfRangeError, routine, "sizes", f"{nbytes} bytes from byte {start} on", wants)
    return memory[start : start + nbytes].view(dtype).view(tuple(sizes))


def _until(routine: str, done: Callable[[], bool], timeout_ms: int) -> None:
    seconds = timeout_ms / 1000 or job.timeout
    limit = time.monotonic() + seconds
    while not done():
        if seconds and time.monotonic() > limit:
            refuse(WaitTimeoutError, routine, "channel", f"no signal in {seconds:g} s", "a call of the other member")
        time.sleep(0)
