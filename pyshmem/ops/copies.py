"""Calls whose data the copy engine moves: PEs meet at the start, and a flag follows each chunk of data.

The kernels here are one warp with few registers, so that they fit on a multiprocessor beside a program of the library's
product. A larger kernel that waits on a side stream begins when the product frees a multiprocessor, and keeps that from it.
"""

from __future__ import annotations

from copy import copy

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.host.teams import Team
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.memory.heap import default
from pyshmem.ops import protocol

PITCH = 2  # words from flag to flag: kernels are compiled for addresses that are multiples of 16


def peers_of(team: Team) -> list[int]:
    """Return the numbers of the other members, beginning with the next one, so that not all send to the same PE."""
    return [(team.me + i) % team.size for i in range(1, team.size)]


def put(team: Team, target: torch.Tensor, source: torch.Tensor, pe: int) -> None:
    """Put ``source``, which may be empty, to ``target`` on ``pe`` of the team, on the current stream."""
    if source.numel():
        shmem.put(target, source, team._world_pe("put", pe))


def order_copies() -> None:
    """Order copies before the flags that follow them on the current stream, also those that kernels set."""
    heap = default()
    if not heap.streams:
        shmem.fence()
    elif heap.near.moves_words:  # a stream of CUDA does so itself
        heap.near.publish(heap.near.use_stream())


@triton.jit
def begin_call(ctx, words):
    """Wait until all PEs have reached this call. Its epoch is in STAMP from now on."""
    epoch = protocol.enter(ctx, words)
    protocol.arrive(ctx, words, epoch)
    protocol.await_arrivals(ctx, words, epoch)
    tl.store(words + protocol.STAMP, epoch)


@triton.jit
def await_flag(ctx, words, flag, ENDS: tl.constexpr):
    """Wait until a chunk of this call has come. ENDS: it is the last one, and ends the call."""
    epoch = protocol.enter(ctx, words)
    dev.signal_wait_until(ctx, flag, dev.CMP_GE, epoch)
    if ENDS:
        tl.store(words + protocol.ROUND, epoch)


def beginner(team: Team, words: torch.Tensor) -> Prepared:
    """Return begin_call on a plan's words, to be called without arrays."""
    return Prepared(begin_call, 1, (shmem.device_context(team), words), (), {}, num_warps=1)


class Flags:
    """The flags of chunks from each PE, (n_pes, chunks, words from flag to flag), which the copy engine sets."""

    def __init__(self, team: Team, words: torch.Tensor, flags: torch.Tensor) -> None:
        self._team, self._flags = team, [list(each) for each in flags]
        self._own = [each[:1] for each in flags[team.me]]
        self._epoch = words[protocol.STAMP.value : protocol.STAMP.value + 1]

    def tell(self, pe: int, chunk: int) -> None:
        """Set the flag of ``chunk`` on ``pe`` of the team, behind the copies on the current stream."""
        order_copies()
        put(self._team, self._own[chunk], self._epoch, pe)


class Chunks(Flags):
    """Calls that wait for chunks on the current stream."""

    @staticmethod
    def space(team: Team, count: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """What the workspace must have for ``count`` chunks from each PE."""
        words, flags = (protocol.words_of(team.size),), (team.size, count, PITCH)
        return {"words": (words, torch.uint64), "flags": (flags, torch.uint64)}

    def __init__(self, team: Team, words: torch.Tensor, flags: torch.Tensor) -> None:
        super().__init__(team, words, flags)
        self._last = ((team.me - 1) % team.size, flags.shape[1] - 1)  # PE and chunk
        self.begin = beginner(team, words)
        fixed, sample = (shmem.device_context(team), words), (flags[0, 0],)
        self._await = {ends: Prepared(await_flag, 1, fixed, sample, {"ENDS": ends}, num_warps=1) for ends in (0, 1)}

    def resized(self, count: int) -> Chunks:
        """Return the same for calls of ``count`` chunks from each PE, which are not more."""
        if self._last[1] == count - 1:
            return self
        made = copy(self)
        made._last = self._last[0], count - 1
        return made

    def wait(self, pe: int, chunk: int) -> None:
        """Let the current stream wait for ``chunk`` of ``pe``. A call ends with the last chunk of the last peer."""
        self._await[(pe, chunk) == self._last](self._flags[pe][chunk])
