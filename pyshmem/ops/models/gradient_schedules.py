"""How buckets of gradients are reduced on a side stream, with few programs, or none, beside backward."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import pyshmem as shmem
from pyshmem.device import arch
from pyshmem.device.collectives.packing import summed_in
from pyshmem.host.teams import Team
from pyshmem.ops.configurations import machine
from pyshmem.ops.exchanges import peers_of, put
from pyshmem.ops.launching import Prepared
from pyshmem.ops.models.gradient_buckets import LINE

PIECE = 64 << 20  # bytes that are exchanged at once: they bound the slots
PROGRAMS, WARPS = 32, 8  # of the sums


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


class Piece:
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
        programs = max(min(-(-self.count // block), machine().programs, PROGRAMS), 1)
        constants = {"N": n, "DIVISOR": divisor, "BLOCK": block}
        self.add = Prepared(
            add_shares, programs, (self.count, self.share), [self.slots] * 3, constants, num_warps=WARPS
        )


class CopyEngine:
    """The copy engine brings each share to its owner and the sums to all; the sums are made by a short kernel between."""

    def __init__(self, team: Team, flat: torch.Tensor, divisor: int, slots: list[torch.Tensor]) -> None:
        """flat: the bucket.  slots: two arrays of bytes. Pieces take the first one, which then becomes the last one."""
        self.team, self.flat = team, flat
        each, length = PIECE // flat.itemsize, flat.numel()
        self.pieces = []
        for first in range(0, length, each):
            self.pieces.append(Piece(team, first, min(first + each, length), flat.dtype, slots[0], divisor))
            slots.reverse()

    def __call__(self, source: torch.Tensor) -> None:
        """Reduce ``source``, like flat, into flat of all PEs, on the current stream. The next meeting completes it.

        Peers have added what was in a slot before they come to the meeting after it, so two slots in turn are enough.
        """
        me, n = self.team.me, self.team.size
        for piece in self.pieces:
            for pe in peers_of(self.team):
                there = piece.shares[pe]
                slot = piece.slots[(me - pe - 1) % n]
                put(self.team, slot[: there.stop - there.start], source[there], pe)
            shmem.barrier_on_stream(self.team)
            if piece.count:
                piece.add(source[piece.own], piece.slots, self.flat[piece.own])
            for pe in peers_of(self.team):
                put(self.team, self.flat[piece.own], self.flat[piece.own], pe)


class ReduceOnStream:
    """One kernel on all PEs. Gradients are divided before, as DistributedDataParallel does, so that sums do not overflow."""

    def __init__(self, team: Team, flat: torch.Tensor, divisor: int, slots: list[torch.Tensor]) -> None:
        self.team, self.flat, self.divisor = team, flat, divisor

    def __call__(self, source: torch.Tensor) -> None:
        if source is not self.flat or self.divisor > 1:
            torch.mul(source, 1.0 / self.divisor, out=self.flat)
        shmem.reduce_on_stream(self.flat, self.flat, team=self.team)


SCHEDULES = {"copy_engine": CopyEngine, "reduce_on_stream": ReduceOnStream}


def block_of(dtype: torch.dtype) -> int:
    """Return the elements that a program adds at once: 16 bytes of each of 64 threads a warp."""
    return 64 * WARPS * 16 // dtype.itemsize


def share_length(count: int, n: int) -> int:
    """Return the elements of a share: a multiple of LINE."""
    return -(-count // (LINE * n)) * LINE


def slot_bytes(count: int, itemsize: int, n: int) -> int:
    """Return the bytes of the slots for a piece of a bucket of ``count`` elements."""
    return (n - 1) * share_length(min(count, PIECE // itemsize), n) * itemsize
