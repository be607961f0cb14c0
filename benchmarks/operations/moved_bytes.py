"""What operators cannot be faster than: their bytes alone, over the link and in memory, and one meeting of all PEs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from benchmarks.in_job import GRAPH, Case
from benchmarks.operations.together import Together, differ
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.kernels.bound_kernels import Prepared, may_be_early
from pyshmem.ops import protocol
from pyshmem.ops.machine import machine

BYTES = "bytes alone"
CALLS = 16  # in a graph
WARPS, EACH = 16, 8  # of a program; int32 of a thread
RESIDENT = 2  # programs of a multiprocessor
SENDING = 0.25  # of the programs send: the best of an eighth to three quarters, on two H200s
READ = tl.constexpr(7)  # what local reads find


@triton.jit
def move_bytes(
    ctx, words, sent, read, written, source, target, local, result,
    SENDERS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Send the source to this PE's slot of the target on all peers, by SENDERS programs; the others read and write here."""
    if EARLY:
        gpu.follow()
    me, n, program = dev.my_pe(ctx), dev.n_pes(ctx), tl.program_id(0)
    number = protocol.enter(ctx, words)
    if program < SENDERS:
        slot = target + tl.cast(me, tl.int64) * sent
        for start in range(program * BLOCK, sent, SENDERS * BLOCK):
            lane = start + tl.arange(0, BLOCK)
            values = tl.load(source + lane, mask=lane < sent)
            for i in range(1, n):
                dev.store(ctx, slot + lane, values, (me + i) % n, lane < sent)
    else:
        others = tl.num_programs(0) - SENDERS
        for start in range((program - SENDERS) * BLOCK, tl.maximum(read, written), others * BLOCK):
            lane = start + tl.arange(0, BLOCK)
            values = tl.load(local + lane, mask=lane < read, other=0)
            tl.store(result + lane, values, mask=(lane < written) | ((lane < read) & (values != READ)))
    protocol.leave(ctx, words, number, tl.num_programs(0), True)


class MovedBytes(Together):
    """A way beside those of operators."""

    def moved_bytes(self, sent: int, read: int, written: int) -> Case:
        """sent: bytes that go to each peer.  read, written: those of memory here, beside them. Multiples of 4.

        Every number that is read is looked at, so that no load is left out.
        """
        sent, read, written = (-(-self.accelerator.cut(each, 4000) // 4) for each in (sent, read, written))
        device = self.accelerator.device
        source = torch.full((sent,), self.me + 1, dtype=torch.int32, device=device)
        target = self._symmetric(torch.zeros((self.n, sent), dtype=torch.int32, device=device))
        local = torch.full((read,), READ.value, dtype=torch.int32, device=device)
        result = torch.zeros(max(read, written), dtype=torch.int32, device=device)
        words = self._symmetric(torch.zeros(protocol.words_of(self.n), dtype=torch.uint64, device=device))
        block, programs = WARPS * 32 * EACH, RESIDENT * machine().programs
        constants = {"SENDERS": max(int(programs * SENDING), 1), "BLOCK": block, "EARLY": may_be_early()}
        fixed = (shmem.device_context(), words, sent, read, written)
        arrays = source, target, local, result
        kernel = Prepared(move_bytes, programs, fixed, arrays, constants, constants["EARLY"], num_warps=WARPS)

        def check() -> str:
            target.zero_()
            result.zero_()
            self._meet()
            kernel(*arrays)
            self._meet()
            wrong = "".join(differ(target[pe], pe + 1) for pe in range(self.n) if pe != self.me)
            least = min(read, written)
            return wrong + differ(result[:least], READ.value)

        statement = "a kernel that moves as many bytes"
        return Case(statement, lambda: kernel(*arrays), check, GRAPH, self.accelerator.cut(CALLS, 1))
