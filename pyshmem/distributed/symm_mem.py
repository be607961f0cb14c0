"""torch's symmetric memory in a symmetric heap: after ``enable``, torch.distributed._symmetric_memory allocates there, and
torch's own operators, torch.ops.symm_mem.*, take symmetric tensors.

torch's C++ library asks an allocator for memory and for the addresses of peers. Ours is _symm_mem.cpp, compiled against the
torch that is installed; it asks the objects here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import pyshmem as shmem
from pyshmem import device as dev
from pyshmem.base.errors import (
    HeapExhaustedError,
    NotSymmetricError,
    OutOfRangeError,
    UnreachableError,
    WaitTimeoutError,
    refuse,
)
from pyshmem.base.job import job
from pyshmem.device.wait import wait
from pyshmem.distributed.compiled import compiled
from pyshmem.host.teams import TEAM_WORLD
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.memory.arguments import count_of, require_init
from pyshmem.memory.heap import Heap, heaps

__all__ = ["enable"]

_ALIGNED = 4096  # of what torch allocates
_OWNED = "a tensor of torch's symmetric memory", "nothing: a later empty there frees what no tensor has on any PE"


def enable(pads: int = 1024) -> None:
    """Let torch's symmetric memory, torch.distributed._symmetric_memory and torch.ops.symm_mem, be memory of our heaps.

    It compiles a module for this version of torch, once for each user and node, in about half a minute. ``rendezvous`` and
    the operators then take any symmetric tensor, with groups of any backend in a job where rank i is PE i. ``empty`` of
    torch's module allocates in the heap; its memory is free again at a later ``empty``, once its tensor is gone on all PEs,
    and shmem.free refuses it.
    pads: how many pairs of a tensor and a group get signal pads, of the size of set_signal_pad_size now; of each heap.
    Order: collective over all PEs, once in a job; a barrier on return. So is ``empty`` from then on, with equal sizes:
        torch's own is local. A PE that calls it alone ends after PYSHMEM_WAIT_TIMEOUT.
        rendezvous, and the first operator on a tensor, is collective over the group, and no part of CUDA graphs.
        Kernels of torch wait without a limit; barrier, put_signal and wait_signal as long as PYSHMEM_WAIT_TIMEOUT says.
    Errors: ArgumentError without a C++ compiler, Python's headers, or a torch from 2.11 on; HeapExhaustedError;
        NotInitializedError. rendezvous: UnreachableError for members on other nodes; HeapExhaustedError if no pad is left.
    """
    require_init("enable")
    count = count_of("enable", "pads", pads)
    module = compiled()
    for heap in heaps.values():
        door = _Door(heap, count, module.pad_bytes())
        door.unused, door.forget = module.take_over(door, heap.device, heap.index)
    TEAM_WORLD.meeting.sync("enable")


class _Door:
    """What _symm_mem.cpp asks about one heap."""

    unused: Callable[[], list[int]]  # addresses of what has been freed here
    forget: Callable[[int], None]

    def __init__(self, heap: Heap, count: int, pad_bytes: int) -> None:
        self._heap, self._next = heap, 0
        self._pads = shmem.zeros(count, pad_bytes // 4, dtype=torch.int32, device=heap.device)
        self._blocks: dict[int, torch.Tensor] = {}

    def allocate(self, size: int) -> int:
        """Collective over all PEs."""
        assert job.comm is not None
        _meet_for_empty()
        base = self._heap.base
        unused = {each - base for each in self.unused()}
        for offset in sorted(set.intersection(*job.comm.allgather(unused))):
            del self._heap.owned[offset]
            shmem.free(self._blocks.pop(offset))
            self.forget(base + offset)
        block = shmem.align(_ALIGNED, max(size, 1), device=self._heap.device)
        self._blocks[block.data_ptr() - base] = block
        self._heap.owned[block.data_ptr() - base] = _OWNED
        return block.data_ptr()

    def holds(self, address: int) -> bool:
        return bool(self._heap.allocator.covers(address - self._heap.base, 1))

    def memory(self, address: int, group_name: str) -> Memory | None:
        """Return the memory of a group's members at the same place, or None if it is not symmetric. Collective over it."""
        if not self.holds(address):
            return None
        group = dist.distributed_c10d._resolve_process_group(group_name)  # type: ignore[arg-type]
        pes = dist.get_process_group_ranks(group)
        offset = address - self._heap.base
        # all members take the pad whose number is the largest that one of them would take
        agreed = torch.tensor([self._next, offset, -offset], device=self._pads.device)
        dist.all_reduce(agreed, dist.ReduceOp.MAX, group)
        number, most, least = agreed.tolist()
        if most != offset or -least != offset:
            refuse(NotSymmetricError, "rendezvous", "tensor", self._heap.place(offset), f"that of all members: {most}")
        if number >= len(self._pads):
            got = f"one more pair of a tensor and a group, {number + 1}"
            wants = f"at most the {len(self._pads)} of symm_mem.enable(pads=)"
            refuse(HeapExhaustedError, "rendezvous", "tensor", got, wants)
        self._next = number + 1
        return Memory(self._heap, address, self._pads[number], pes)


def _meet_for_empty() -> None:
    """Wait for all PEs, as long as PYSHMEM_WAIT_TIMEOUT says. Errors: WaitTimeoutError."""
    try:
        TEAM_WORLD.meeting.sync("symm_mem.empty")
    except WaitTimeoutError as error:
        more = (
            "; empty of torch's symmetric memory is collective over all PEs after symm_mem.enable(), unlike torch's own"
        )
        raise WaitTimeoutError(f"{error}{more}") from None


class Memory:
    """The buffers and signal pads of a group's members.

    Words of pads are zero whenever nobody waits; (channel, rank) is word channel * world size + rank.
    """

    def __init__(self, heap: Heap, address: int, pad: torch.Tensor, pes: Sequence[int]) -> None:
        far = [pe for pe in pes if pe not in heap.deltas]
        if far:
            got = f"PE {far[0]}, whose memory is not mapped here"
            refuse(UnreachableError, "rendezvous", "group", got, "PEs of one node")
        self._heap, self._address, self._words = heap, address, pad
        self.pes, self.rank = pes, pes.index(job.my_pe)
        self.buffers, self.pads = ([place + heap.deltas[pe] for pe in pes] for place in (address, pad.data_ptr()))
        self._table = torch.tensor([*self.buffers, *self.pads, *pes], device=pad.device)
        self.table_address = self._table.data_ptr()
        self._known: dict[tuple[str, int, int | None], Callable[[int], None]] = {}  # by routine, channel and member

    def buffer_size(self) -> int:
        """The bytes from the beginning to the end of its allocation."""
        offset = self._address - self._heap.base
        block = self._heap.allocator.nearest(offset)
        return max(block[1] - offset, 0) if block else 0

    def barrier(self, channel: int, timeout_ms: int) -> None:
        self._call("barrier", channel, None, timeout_ms)

    def put_signal(self, rank: int, channel: int, timeout_ms: int) -> None:
        self._call("put_signal", channel, rank, timeout_ms)

    def wait_signal(self, rank: int, channel: int, timeout_ms: int) -> None:
        self._call("wait_signal", channel, rank, timeout_ms)

    def _call(self, routine: str, channel: int, rank: int | None, timeout_ms: int) -> None:
        """In GPU memory on the current stream; timeout_ms counts in CPU memory alone."""
        call = self._known.get((routine, channel, rank))
        if call is None:
            call = self._known[routine, channel, rank] = self._made(routine, channel, rank)
        call(timeout_ms)

    def _made(self, routine: str, channel: int, rank: int | None) -> Callable[[int], None]:
        """Return the call with this channel and member, None for all."""
        size = len(self.pes)
        if not 0 <= channel < len(self._words) // size:
            most = len(self._words) // size - 1
            refuse(OutOfRangeError, routine, "channel", channel, f"0 to {most}, for which the pad has room")
        if rank is not None and not 0 <= rank < size:
            refuse(OutOfRangeError, routine, "rank", rank, f"0 to {size - 1}")
        words = self._words[channel * size : (channel + 1) * size]
        to, of = routine != "wait_signal", routine != "put_signal"
        if self._heap.streams:
            fixed = (shmem.device_context(), words, self._table[2 * size :], self.rank, rank or 0)
            kernel = Prepared(_meet, size if rank is None else 1, fixed, (), {"PUT": to, "TAKE": of})
            return lambda timeout_ms: kernel()
        ranks = range(size) if rank is None else [rank]
        return partial(self._swaps, routine, words, ranks if to else [], ranks if of else [])

    def _swaps(self, routine: str, words: torch.Tensor, to: Sequence[int], of: Sequence[int], timeout_ms: int) -> None:
        shmem.quiet()
        for rank in to:
            _until(routine, partial(_swap, words[self.rank], 0, 1, self.pes[rank]), timeout_ms)
        for rank in of:
            _until(routine, partial(_swap, words[rank], 1, 0, job.my_pe), timeout_ms)


@triton.jit
def _meet(ctx, words, pes, me, first, PUT: tl.constexpr, TAKE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program for each member, from ``first`` on: signal it, and take its signal. words: of this channel."""
    rank = first + tl.program_id(0)
    if PUT:
        pe = tl.load(pes + rank)
        there = dev.ptr(ctx, words + me, pe)
        late = dev.atomic_compare_swap(ctx, words + me, 0, 1, pe)
        while late != 0:  # the member has not taken the signal before
            late = wait(ctx, "wait_until", "ivar", there, dev.CMP_EQ, 0)
            if late != 0:  # noqa: SIM108  no select: the swap is done in one case alone
                late = 0  # over the limit
            else:
                late = dev.atomic_compare_swap(ctx, words + me, 0, 1, pe)
    if TAKE:
        dev.wait_until(ctx, words + rank, dev.CMP_EQ, 1)
        tl.atomic_xchg(words + rank, 0, sem="release", scope="sys")


def _swap(word: torch.Tensor, old: int, new: int, pe: int) -> bool:
    return bool(shmem.atomic_compare_swap(word, old, new, pe) == old)


def _until(routine: str, done: Callable[[], bool], timeout_ms: int) -> None:
    seconds = timeout_ms / 1000 or job.timeout
    limit = time.monotonic() + seconds
    while not done():
        if seconds and time.monotonic() > limit:
            refuse(WaitTimeoutError, routine, "channel", f"no signal in {seconds:g} s", "a call of the other member")
        time.sleep(0)
