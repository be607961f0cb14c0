"""How buckets of gradients are reduced on a side stream, with few programs, or none, beside backward."""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.collectives.packing import summed_in
from pyshmem.host.teams import Team
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.memory.heap import default
from pyshmem.ops.copies import PITCH, peers_of, put
from pyshmem.ops.machine import machine
from pyshmem.ops.training.buckets import LINE

CHUNK = 64 << 20  # bytes that are exchanged at once: they bound the slots
# Of the sums: a program fits on a multiprocessor beside one of cuBLAS, which takes 384 x 168 of its 65536 registers.
WARPS, REGISTERS = 1, 32


@triton.jit
def add_shares(count, pitch, own, slots, out, N: tl.constexpr, DIVISOR: tl.constexpr, BLOCK: tl.constexpr):
    """Store ``own`` plus N - 1 ``slots``, which are ``pitch`` elements apart, divided, to ``out``. count: multiple of 16."""
    kind: tl.constexpr = summed_in(out.dtype.element_ty)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        lane = start + tl.arange(0, BLOCK)
        total = tl.load(own + lane, mask=lane < count, other=0.0).to(kind)
        for i in tl.static_range(N - 1):
            total += tl.load(slots + i * pitch + lane, mask=lane < count, other=0.0).to(kind)
        total = total / DIVISOR if kind == tl.float64 else total * (1.0 / DIVISOR)
        tl.store(out + lane, arch.rounded(total, out.dtype.element_ty), mask=lane < count)


@triton.jit
def await_chunk(ctx, words, pitch, first, ENDS: tl.constexpr):
    """Wait until a chunk's shares have come from all peers. ENDS: it is the last one; the next call gets its number.

    words: the number of this call.  first: the chunk's flag of PE 0; that of the next PE is ``pitch`` words behind.
    """
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    number = dev.signal_fetch(ctx, words)
    for i in range(1, n):
        dev.signal_wait_until(ctx, first + (me + i) % n * pitch, dev.CMP_GE, number)
    if ENDS:
        tl.store(words, number + 1)


class Chunk:
    """A range of a bucket, of which each PE of the team owns a share. first, last: its elements."""

    def __init__(
        self, team: Team, first: int, last: int, dtype: torch.dtype, slots: torch.Tensor, divisor: int
    ) -> None:
        """slots: bytes, for the parts of this PE's share that others send."""
        n = team.size
        self.share = share_length(last - first, n)
        cuts = [min(first + pe * self.share, last) for pe in range(n + 1)]
        self.shares = [slice(*cuts[pe : pe + 2]) for pe in range(n)]
        self.slots = slots.view(dtype)[: (n - 1) * self.share].view(n - 1, self.share)
        self.own, self.count = self.shares[team.me], cuts[team.me + 1] - cuts[team.me]
        block = block_of(dtype)
        programs = max(min(-(-self.count // block), machine().programs), 1)
        constants = {"N": n, "DIVISOR": divisor, "BLOCK": block}
        few = {"maxnreg": REGISTERS} if machine().arch == "nvidia" else {}
        self.add = Prepared(
            add_shares, programs, (self.count, self.share), [self.slots] * 3, constants, num_warps=WARPS, **few
        )


class CopyEngine:
    """The copy engine brings each share to its owner and the sums to all; the sums are made by a short kernel between.

    A flag follows each share. What waits for flags is one warp with few registers, which fits on a multiprocessor beside a
    program of the library's product, as in pyshmem.ops.copies. All PEs meet when the last bucket is done.
    """

    def __init__(
        self, team: Team, flat: torch.Tensor, divisor: int, slots: list[torch.Tensor], words: torch.Tensor
    ) -> None:
        """flat: the bucket.  slots: two arrays of bytes. Chunks take the first one, which then becomes the last one.

        words: as words_of says: the number of the call, and flags.
        """
        self.team, self.flat = team, flat
        each, length = CHUNK // flat.itemsize, flat.numel()
        self.chunks = []
        for first in range(0, length, each):
            self.chunks.append(Chunk(team, first, min(first + each, length), flat.dtype, slots[0], divisor))
            slots.reverse()
        count = len(self.chunks)
        self.number, self.flags = words[:1], words[PITCH:].view(team.size, count, PITCH)
        self.number.view(torch.int64).fill_(1)
        fixed, sample = (shmem.device_context(team), words, count * PITCH), (self.flags[0, 0],)
        self.wait = [Prepared(await_chunk, 1, fixed, sample, {"ENDS": ends}, num_warps=1) for ends in (0, 1)]

    def __call__(self, source: torch.Tensor) -> None:
        """Reduce ``source``, like flat, into flat of all PEs, on the current stream. The next meeting completes it.

        A PE sends a share after it has added the chunk before, so two slots in turn are enough: who has a peer's share of
        a chunk may send it that of the next one. So every share has a flag, even one without elements.
        """
        me, n = self.team.me, self.team.size
        for i, chunk in enumerate(self.chunks):
            for pe in peers_of(self.team):
                there = chunk.shares[pe]
                slot = chunk.slots[(me - pe - 1) % n]
                put(self.team, slot[: there.stop - there.start], source[there], pe)
                if not default().streams:  # copies on a stream follow each other
                    shmem.fence()
                put(self.team, self.flags[me, i, :1], self.number, pe)
            self.wait[chunk is self.chunks[-1]](self.flags[0, i])
            if chunk.count:
                chunk.add(source[chunk.own], chunk.slots, self.flat[chunk.own])
            for pe in peers_of(self.team):
                put(self.team, self.flat[chunk.own], self.flat[chunk.own], pe)


class ReduceOnStream:
    """One kernel on all PEs. Gradients are divided before, as DistributedDataParallel does, so that sums do not overflow."""

    def __init__(
        self, team: Team, flat: torch.Tensor, divisor: int, slots: list[torch.Tensor], words: torch.Tensor
    ) -> None:
        self.team, self.flat, self.divisor = team, flat, divisor

    def __call__(self, source: torch.Tensor) -> None:
        if source is not self.flat or self.divisor > 1:
            torch.mul(source, 1.0 / self.divisor, out=self.flat)
        shmem.reduce_on_stream(self.flat, self.flat, team=self.team)


Schedule = Literal["auto", "copy_engine", "reduce_on_stream"]
SCHEDULES = {"copy_engine": CopyEngine, "reduce_on_stream": ReduceOnStream}


def block_of(dtype: torch.dtype) -> int:
    """Return the elements that a program adds at once: 16 bytes of each of 64 threads a warp."""
    return 64 * WARPS * 16 // dtype.itemsize


def share_length(count: int, n: int) -> int:
    """Return the elements of a share: a multiple of LINE."""
    return -(-count // (LINE * n)) * LINE


def slot_bytes(count: int, itemsize: int, n: int) -> int:
    """Return the bytes of the slots for a chunk of a bucket of ``count`` elements."""
    return (n - 1) * share_length(min(count, CHUNK // itemsize), n) * itemsize


def words_of(count: int, itemsize: int, n: int) -> int:
    """Return the words of a bucket of ``count`` elements: the number of its call, and a flag for each PE and chunk."""
    return PITCH * (1 + n * -(-count // (CHUNK // itemsize)))
